// The suite of an operator with admission webhooks, on the binaries that KUBEBUILDER_ASSETS names. envtest registers
// the webhooks itself: its caBundle is the serving certificate, and its URLs have doubled slashes.
package webhooked

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

const (
	marked      = "suite.example.com/marked"
	replicasMax = 10
	patience    = 90 * time.Second
)

var machineKind = schema.GroupVersionKind{Group: "suite.example.com", Version: "v1", Kind: "Machine"}

// A kind whose rules name fields that CEL reserves, with and without the escape.
func machines() *apiextensionsv1.CustomResourceDefinition {
	text := apiextensionsv1.JSONSchemaProps{Type: "string"}
	spec := apiextensionsv1.JSONSchemaProps{
		Type:       "object",
		Properties: map[string]apiextensionsv1.JSONSchemaProps{"namespace": text, "package": text, "in": text},
		XValidations: apiextensionsv1.ValidationRules{
			{Rule: "!has(self.namespace) || self.namespace != 'forbidden'", Message: "that namespace is forbidden"},
			{Rule: "!has(self.__package__) || self.package.size() < 5", Message: "the package is too long"},
			{Rule: "!has(self.__in__) || self.__in__ != 'out'", Message: "in is out"},
		},
	}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "machines.suite.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: machineKind.Group,
			Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "machines", Singular: "machine", Kind: machineKind.Kind, ListKind: "MachineList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: machineKind.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": spec},
				}},
			}},
		},
	}
}

func rules() []admissionv1.RuleWithOperations {
	return []admissionv1.RuleWithOperations{{
		Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
		Rule:       admissionv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"deployments", "statefulsets"}},
	}}
}

func clientConfig(path string) admissionv1.WebhookClientConfig {
	return admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Name: "hooks", Namespace: "default", Path: &path}}
}

func hooks() envtest.WebhookInstallOptions {
	none := admissionv1.SideEffectClassNone
	seconds := int32(30)
	return envtest.WebhookInstallOptions{
		MutatingWebhooks: []*admissionv1.MutatingWebhookConfiguration{{
			ObjectMeta: metav1.ObjectMeta{Name: "mutating"},
			Webhooks: []admissionv1.MutatingWebhook{{
				Name: "mark.suite.example.com", ClientConfig: clientConfig("/mutate"), Rules: rules(), SideEffects: &none,
				TimeoutSeconds: &seconds, AdmissionReviewVersions: []string{"v1"},
			}},
		}},
		ValidatingWebhooks: []*admissionv1.ValidatingWebhookConfiguration{{
			ObjectMeta: metav1.ObjectMeta{Name: "validating"},
			Webhooks: []admissionv1.ValidatingWebhook{{
				Name: "bound.suite.example.com", ClientConfig: clientConfig("/validate"), Rules: rules(), SideEffects: &none,
				TimeoutSeconds: &seconds, AdmissionReviewVersions: []string{"v1"},
			}},
		}},
	}
}

func mutate(_ context.Context, request admission.Request) admission.Response {
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal(request.Object.Raw, object); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[marked] = string(request.Operation)
	object.SetAnnotations(annotations)
	changed, err := json.Marshal(object)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.PatchResponseFromRaw(request.Object.Raw, changed)
}

func validate(_ context.Context, request admission.Request) admission.Response {
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal(request.Object.Raw, object); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	replicas, _, err := unstructured.NestedInt64(object.Object, "spec", "replicas")
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if replicas > replicasMax {
		return admission.Denied(fmt.Sprintf("%d replicas, at most %d", replicas, replicasMax))
	}
	return admission.Allowed("")
}

// The status of a Deployment follows its spec.
type reconciler struct{ client.Client }

func (r reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var found appsv1.Deployment
	if err := r.Get(ctx, request.NamespacedName, &found); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if found.Status.ObservedGeneration == found.Generation {
		return ctrl.Result{}, nil
	}
	found.Status.ObservedGeneration = found.Generation
	found.Status.Replicas = *found.Spec.Replicas
	found.Status.ReadyReplicas = *found.Spec.Replicas
	err := r.Status().Update(ctx, &found)
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: time.Millisecond}, nil
	}
	return ctrl.Result{}, err
}

func template() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "a"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "busybox:1"}}},
	}
}

func selector() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}
}

func deployment(namespace, name string, replicas int32) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       appsv1.DeploymentSpec{Replicas: &replicas, Selector: selector(), Template: template()},
	}
}

func statefulSet(namespace, name string) *appsv1.StatefulSet {
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       appsv1.StatefulSetSpec{Selector: selector(), Template: template(), ServiceName: "web"},
	}
}

// until asks again until the answer is yes.
func until(ctx context.Context, t *testing.T, what string, ask func(context.Context) (bool, error)) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, patience, true, ask); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func TestWebhooked(t *testing.T) {
	log.SetLogger(logr.Discard())
	environment := &envtest.Environment{CRDs: []*apiextensionsv1.CustomResourceDefinition{machines()}, WebhookInstallOptions: hooks()}
	config, err := environment.Start()
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	defer func() {
		if err := environment.Stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	}()

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	installed := environment.WebhookInstallOptions
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Metrics: server.Options{BindAddress: "0"},
		WebhookServer: webhook.NewServer(webhook.Options{
			Host: installed.LocalServingHost, Port: installed.LocalServingPort, CertDir: installed.LocalServingCertDir,
		}),
	})
	if err != nil {
		t.Fatalf("manager: %v", err)
	}
	manager.GetWebhookServer().Register("/mutate", &webhook.Admission{Handler: admission.HandlerFunc(mutate)})
	manager.GetWebhookServer().Register("/validate", &webhook.Admission{Handler: admission.HandlerFunc(validate)})
	if err := ctrl.NewControllerManagedBy(manager).For(&appsv1.Deployment{}).Complete(reconciler{manager.GetClient()}); err != nil {
		t.Fatalf("controller: %v", err)
	}
	go func() {
		if err := manager.Start(ctx); err != nil {
			t.Errorf("manager: %v", err)
		}
	}()
	until(ctx, t, "the webhook server", func(context.Context) (bool, error) {
		return manager.GetWebhookServer().StartedChecker()(nil) == nil, nil
	})

	direct, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatalf("client: %v", err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "suite-"}}
	if err := direct.Create(ctx, namespace); err != nil {
		t.Fatal(err)
	}

	t.Run("a Deployment goes through both webhooks and is reconciled", func(t *testing.T) {
		made := deployment(namespace.Name, "web", 2)
		if err := direct.Create(ctx, made); err != nil {
			t.Fatal(err)
		}
		if made.Annotations[marked] != "CREATE" || made.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType {
			t.Errorf("annotations %v, strategy %v", made.Annotations, made.Spec.Strategy)
		}
		until(ctx, t, "the status", func(ctx context.Context) (bool, error) {
			err := direct.Get(ctx, client.ObjectKeyFromObject(made), made)
			return made.Status.ReadyReplicas == 2 && made.Status.ObservedGeneration == made.Generation, err
		})
		patch := client.MergeFrom(made.DeepCopy())
		*made.Spec.Replicas = 3
		if err := direct.Patch(ctx, made, patch); err != nil {
			t.Fatal(err)
		}
		if made.Annotations[marked] != "UPDATE" {
			t.Errorf("annotations %v", made.Annotations)
		}
		until(ctx, t, "the status after the update", func(ctx context.Context) (bool, error) {
			err := direct.Get(ctx, client.ObjectKeyFromObject(made), made)
			return made.Status.ReadyReplicas == 3, err
		})
	})
	t.Run("the validating webhook refuses creation and update", func(t *testing.T) {
		if err := direct.Create(ctx, deployment(namespace.Name, "many", replicasMax+1)); !apierrors.IsForbidden(err) {
			t.Errorf("created with too many replicas: %v", err)
		}
		made := deployment(namespace.Name, "few", 1)
		if err := direct.Create(ctx, made); err != nil {
			t.Fatal(err)
		}
		patch := client.MergeFrom(made.DeepCopy())
		*made.Spec.Replicas = replicasMax + 1
		if err := direct.Patch(ctx, made, patch); !apierrors.IsForbidden(err) {
			t.Errorf("patched to too many replicas: %v", err)
		}
	})
	t.Run("the scale of a Deployment is written", func(t *testing.T) {
		made := deployment(namespace.Name, "scaled", 1)
		if err := direct.Create(ctx, made); err != nil {
			t.Fatal(err)
		}
		scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 4}}
		if err := direct.SubResource("scale").Update(ctx, made, client.WithSubResourceBody(scale)); err != nil {
			t.Fatal(err)
		}
		if err := direct.Get(ctx, client.ObjectKeyFromObject(made), made); err != nil || *made.Spec.Replicas != 4 {
			t.Errorf("%d replicas, %v", *made.Spec.Replicas, err)
		}
	})
	t.Run("StatefulSets are created, updated and deleted together", func(t *testing.T) {
		for _, name := range []string{"one", "two"} {
			if err := direct.Create(ctx, statefulSet(namespace.Name, name)); err != nil {
				t.Fatal(err)
			}
		}
		made := statefulSet(namespace.Name, "one")
		if err := direct.Get(ctx, client.ObjectKeyFromObject(made), made); err != nil {
			t.Fatal(err)
		}
		made.Spec.Template.Spec.Containers[0].Image = "busybox:2"
		if err := direct.Update(ctx, made); err != nil || made.Generation != 2 {
			t.Errorf("generation %d, %v", made.Generation, err)
		}
		made.Spec.ServiceName = "other"
		if err := direct.Update(ctx, made); !apierrors.IsInvalid(err) {
			t.Errorf("another service name: %v", err)
		}
		if err := direct.DeleteAllOf(ctx, &appsv1.StatefulSet{}, client.InNamespace(namespace.Name)); err != nil {
			t.Fatal(err)
		}
		until(ctx, t, "no StatefulSets", func(ctx context.Context) (bool, error) {
			var left appsv1.StatefulSetList
			err := direct.List(ctx, &left, client.InNamespace(namespace.Name))
			return len(left.Items) == 0, err
		})
	})
	t.Run("rules may name fields that CEL reserves", func(t *testing.T) {
		for text, valid := range map[string]bool{"team": true, "forbidden": false} {
			machine := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"namespace": text, "package": "abc", "in": "here"}}}
			machine.SetGroupVersionKind(machineKind)
			machine.SetNamespace(namespace.Name)
			machine.SetName(text)
			err := direct.Create(ctx, machine)
			if valid && err != nil || !valid && !apierrors.IsInvalid(err) {
				t.Errorf("%s: %v", text, err)
			}
		}
	})
	t.Run("a typed client that writes protobuf", func(t *testing.T) {
		binary := rest.CopyConfig(config)
		binary.ContentType = "application/vnd.kubernetes.protobuf"
		binary.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
		typed, err := kubernetes.NewForConfig(binary)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := typed.AppsV1().DaemonSets(namespace.Name).Create(ctx, &appsv1.DaemonSet{
			ObjectMeta: metav1.ObjectMeta{Name: "agents"}, Spec: appsv1.DaemonSetSpec{Selector: selector(), Template: template()},
		}, metav1.CreateOptions{}); err != nil {
			t.Error(err)
		}
		pods := template()
		pods.Spec.RestartPolicy = corev1.RestartPolicyNever
		cronJob, err := typed.BatchV1().CronJobs(namespace.Name).Create(ctx, &batchv1.CronJob{
			ObjectMeta: metav1.ObjectMeta{Name: "nightly"},
			Spec:       batchv1.CronJobSpec{Schedule: "0 3 * * *", JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: pods}}},
		}, metav1.CreateOptions{})
		if err != nil || cronJob.Spec.ConcurrencyPolicy != batchv1.AllowConcurrent {
			t.Errorf("%v, %v", cronJob.Spec.ConcurrencyPolicy, err)
		}
		service, err := typed.CoreV1().Services(namespace.Name).Create(ctx, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: "web"},
			Spec:       corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Selector: map[string]string{"app": "a"}, Ports: []corev1.ServicePort{{Port: 80}}},
		}, metav1.CreateOptions{})
		if err != nil || service.Spec.Ports[0].TargetPort.IntValue() != 80 {
			t.Errorf("%v, %v", service.Spec.Ports, err)
		}
		if err := typed.AppsV1().Deployments(namespace.Name).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			t.Error(err)
		}
		left, err := typed.AppsV1().Deployments(namespace.Name).List(ctx, metav1.ListOptions{})
		if err != nil || len(left.Items) != 0 {
			t.Errorf("%d Deployments left, %v", len(left.Items), err)
		}
	})
}
