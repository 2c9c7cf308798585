//go:build cluster

package proxypod

import "k8s.io/apimachinery/pkg/types"

// Stored reports whether a dedicated pod, namespace/name, is among those that there are.
func (w *Watch) Stored(key string) bool {
	for _, one := range w.dedicated {
		if _, there, _ := one.GetStore().GetByKey(key); there {
			return true
		}
	}
	return false
}

// Leaked counts the pods that are kept as ours and are not there any more.
func (w *Watch) Leaked() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	there := map[string]bool{}
	for _, one := range w.dedicated {
		for _, o := range one.GetStore().List() {
			if p, is := o.(interface{ GetUID() types.UID }); is {
				there[string(p.GetUID())] = true
			}
		}
	}
	leaked := 0
	for uid := range w.owned {
		if !there[uid] {
			leaked++
		}
	}
	return leaked
}
