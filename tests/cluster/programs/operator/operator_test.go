// An operator's test suite as operators write them: envtest starts the binaries that KUBEBUILDER_ASSETS names and
// installs the CRDs, a manager reconciles, the tests create objects and wait for what becomes of them.
package operator

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const reconciled = "example.com/reconciled"

var flavorKind = schema.GroupVersionKind{Group: "kueue.x-k8s.io", Version: "v1beta2", Kind: "ResourceFlavor"}

// A ConfigMap that the operator has seen carries an annotation.
type reconciler struct{ client.Client }

func (r reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var found corev1.ConfigMap
	if err := r.Get(ctx, request.NamespacedName, &found); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	before := found.DeepCopy()
	metav1.SetMetaDataAnnotation(&found.ObjectMeta, reconciled, "yes")
	return ctrl.Result{}, r.Patch(ctx, &found, client.MergeFrom(before))
}

func TestOperator(t *testing.T) {
	log.SetLogger(logr.Discard())
	environment := &envtest.Environment{
		CRDDirectoryPaths:     []string{os.Getenv("CRDS")},
		ErrorIfCRDPathMissing: true,
	}
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
	manager, err := ctrl.NewManager(config, ctrl.Options{Metrics: server.Options{BindAddress: "0"}})
	if err != nil {
		t.Fatalf("manager: %v", err)
	}
	if err := ctrl.NewControllerManagedBy(manager).For(&corev1.ConfigMap{}).Complete(reconciler{manager.GetClient()}); err != nil {
		t.Fatalf("controller: %v", err)
	}
	go func() {
		if err := manager.Start(ctx); err != nil {
			t.Errorf("manager: %v", err)
		}
	}()

	direct, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatalf("client: %v", err)
	}
	t.Run("a built-in object is created and reconciled", func(t *testing.T) {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "suite-"}}
		if err := direct.Create(ctx, namespace); err != nil {
			t.Fatal(err)
		}
		made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "made"}}
		if err := direct.Create(ctx, made); err != nil {
			t.Fatal(err)
		}
		err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 90*time.Second, true, func(ctx context.Context) (bool, error) {
			err := direct.Get(ctx, client.ObjectKeyFromObject(made), made)
			return made.Annotations[reconciled] == "yes", err
		})
		if err != nil {
			t.Fatalf("never reconciled: %v", err)
		}
	})
	t.Run("an object of an installed CRD is created, validated, listed and deleted", func(t *testing.T) {
		flavor := &unstructured.Unstructured{}
		flavor.SetGroupVersionKind(flavorKind)
		flavor.SetName("spot")
		if err := direct.Create(ctx, flavor); err != nil {
			t.Fatal(err)
		}
		wrong := flavor.DeepCopy()
		wrong.SetName("wrong")
		wrong.SetResourceVersion("")
		if err := unstructured.SetNestedField(wrong.Object, "not an object", "spec", "nodeLabels"); err != nil {
			t.Fatal(err)
		}
		if err := direct.Create(ctx, wrong); !apierrors.IsInvalid(err) {
			t.Errorf("a flavor against its schema: %v", err)
		}
		listed := &unstructured.UnstructuredList{}
		listed.SetGroupVersionKind(flavorKind)
		if err := direct.List(ctx, listed); err != nil || len(listed.Items) != 1 {
			t.Errorf("listed %d flavors, %v", len(listed.Items), err)
		}
		if err := direct.Delete(ctx, flavor); err != nil {
			t.Error(err)
		}
		if err := direct.Get(ctx, client.ObjectKeyFromObject(flavor), flavor); !apierrors.IsNotFound(err) {
			t.Errorf("a flavor after its deletion: %v", err)
		}
	})
}
