// Informers for Pods, Jobs and Workloads, as a controller has them, that tell on request what they believe.
//
// It prints "synced" once all have their first list. Then every line on standard input is answered with one line of
// JSON: for each resource, the revision of every object it knows by namespace/name. It ends with its input.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	exitOn(err)
	typed, err := kubernetes.NewForConfig(config)
	exitOn(err)
	untyped, err := dynamic.NewForConfig(config)
	exitOn(err)

	builtin := informers.NewSharedInformerFactory(typed, 0)
	custom := dynamicinformer.NewDynamicSharedInformerFactory(untyped, 0)
	workloads := schema.GroupVersionResource{Group: "kueue.x-k8s.io", Version: "v1beta2", Resource: "workloads"}
	watched := map[string]cache.SharedIndexInformer{
		"pods":      builtin.Core().V1().Pods().Informer(),
		"jobs":      builtin.Batch().V1().Jobs().Informer(),
		"workloads": custom.ForResource(workloads).Informer(),
	}

	ctx := context.Background()
	builtin.Start(ctx.Done())
	custom.Start(ctx.Done())
	builtin.WaitForCacheSync(ctx.Done())
	custom.WaitForCacheSync(ctx.Done())
	fmt.Println("synced")

	asked := bufio.NewScanner(os.Stdin)
	for asked.Scan() {
		line, err := json.Marshal(view(watched))
		exitOn(err)
		fmt.Println(string(line))
	}
}

func view(watched map[string]cache.SharedIndexInformer) map[string]map[string]string {
	known := map[string]map[string]string{}
	for resource, informer := range watched {
		known[resource] = map[string]string{}
		for _, object := range informer.GetStore().List() {
			key, err := cache.MetaNamespaceKeyFunc(object)
			exitOn(err)
			accessor, err := meta.Accessor(object)
			exitOn(err)
			known[resource][key] = accessor.GetResourceVersion()
		}
	}
	return known
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
