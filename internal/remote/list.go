package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// pageSize bounds what one answer of the API has.
const pageSize = 500

// NotListedError says that a kind cannot be listed, though the API server answers: the right is
// missing, or the kind is not defined.
type NotListedError struct{ Reason string }

func (e *NotListedError) Error() string { return e.Reason }

// List is every object of a kind in all namespaces, as JSON, in the order of the API. path is
// the collection's, as /apis/gateway.networking.k8s.io/v1/gateways; selector is one of fields,
// or empty. An error is an *NotListedError, or that nothing can be asked.
func (i *Installation) List(ctx context.Context, path, selector string) ([]json.RawMessage, error) {
	var out []json.RawMessage
	next := ""
	// Exits: the last page, or an error; each page has a deadline of its own.
	for {
		request := i.core.RESTClient().Get().AbsPath(path).Param("limit", strconv.Itoa(pageSize))
		if next != "" {
			request = request.Param("continue", next)
		}
		if selector != "" {
			request = request.Param("fieldSelector", selector)
		}
		text, err := request.Do(ctx).Raw()
		switch {
		case apierrors.IsForbidden(err):
			return nil, &NotListedError{"you lack the right to list it in all namespaces"}
		case apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
			return nil, &NotListedError{"its definition is not installed"}
		case err != nil:
			return nil, i.Explain(err, "list", path, "")
		}
		var page struct {
			Metadata struct {
				Continue string `json:"continue"`
			} `json:"metadata"`
			Items []json.RawMessage `json:"items"`
		}
		if err := json.Unmarshal(text, &page); err != nil {
			return nil, fmt.Errorf("read the list of %s: %w", path, err)
		}
		out = append(out, page.Items...)
		if next = page.Metadata.Continue; next == "" {
			return out, nil
		}
	}
}
