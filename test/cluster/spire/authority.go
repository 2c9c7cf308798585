package spire

import (
	"context"
	"encoding/json"
	"fmt"
)

// authority is one of the server's, as its commands print it.
type authority struct {
	AuthorityID string `json:"authority_id"`
}

// Prepare makes another authority. It is in the bundle from then on and signs nothing yet.
func (s *SPIRE) Prepare(ctx context.Context) (id string, err error) {
	text, err := s.Server(ctx, "localauthority", "x509", "prepare", "-output", "json")
	if err != nil {
		return "", err
	}
	var answer struct {
		Prepared authority `json:"prepared_authority"`
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		return "", fmt.Errorf("prepare an authority: %w", err)
	}
	return answer.Prepared.AuthorityID, nil
}

// Activate has the prepared authority sign from then on.
func (s *SPIRE) Activate(ctx context.Context, id string) error {
	_, err := s.Server(ctx, "localauthority", "x509", "activate", "-authorityID", id)
	return err
}

// Bundle is the trust domain's authorities, PEM.
func (s *SPIRE) Bundle(ctx context.Context) (string, error) {
	return s.Server(ctx, "bundle", "show")
}
