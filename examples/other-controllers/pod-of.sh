#!/bin/sh
# Plays a controller: creates the pod of a step as Argo or Tekton would, with the labels and the owner of its object.
# usage: pod-of.sh TYPE OBJECT POD COMMAND
set -eu
api=$(kubectl get "$1" "$2" -o jsonpath='{.apiVersion}')
kind=$(kubectl get "$1" "$2" -o jsonpath='{.kind}')
uid=$(kubectl get "$1" "$2" -o jsonpath='{.metadata.uid}')
kubectl create -f - <<END
apiVersion: v1
kind: Pod
metadata:
  name: $3
  labels: {kueue.x-k8s.io/queue-name: default}
  ownerReferences: [{apiVersion: $api, kind: $kind, name: $2, uid: $uid, controller: true}]
spec:
  restartPolicy: Never
  containers:
  - {name: main, image: none, command: [sh, -c, $4], resources: {requests: {cpu: 100m}}}
END
