{{/* Labels of everything that the chart makes. Takes (dict "root" $ "component" NAME); the component may be empty. */}}
{{- define "aether.labels" -}}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/name: aether
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end }}

{{/* What finds the pods of a component: it never changes. Takes the same. */}}
{{- define "aether.selector" -}}
app.kubernetes.io/name: aether
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* The reference of an image. Takes (dict "root" $ "image" VALUES). */}}
{{- define "aether.image" -}}
{{- if .image.digest -}}
{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ .image.repository }}:{{ .image.tag | default .root.Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* The controller's SPIFFE ID, which proxies insist on. */}}
{{- define "aether.controllerID" -}}
spiffe://{{ .Values.discovery.trustDomain }}/ns/{{ .Release.Namespace }}/sa/aether-controller
{{- end }}

{{/* The host of the discovery listeners. */}}
{{- define "aether.discoveryHost" -}}
coxswain-controller-discovery.{{ .Release.Namespace }}.svc
{{- end }}

{{/* The webhook's Service, its host as API servers call it, and the configuration that has them call. */}}
{{- define "aether.webhook" -}}
{{ .Release.Name }}-controller-webhook
{{- end }}
{{- define "aether.webhookHost" -}}
{{ include "aether.webhook" . }}.{{ .Release.Namespace }}.svc
{{- end }}
{{- define "aether.webhookConfiguration" -}}
{{ include "aether.webhook" . }}.{{ .Release.Namespace }}
{{- end }}

{{/* Where the webhook's certificate comes from: helm, self or spire; empty: there is no webhook. */}}
{{- define "aether.webhookCertificate" -}}
{{- if .Values.webhook.enabled }}
{{- ternary "spire" .Values.webhook.certificate .Values.spire.enabled }}
{{- end }}
{{- end }}

{{/* The name of what is the release's and has no namespace. Takes (dict "root" $ "name" NAME). */}}
{{- define "aether.clusterName" -}}
{{ .name }}:{{ .root.Release.Namespace }}
{{- end }}

{{/* What is watched, the release's own namespace with it, as JSON; [] is all. */}}
{{- define "aether.watched" -}}
{{- if .Values.watchNamespaces }}
{{- append .Values.watchNamespaces .Release.Namespace | uniq | sortAlpha | toJson }}
{{- else }}
{{- "[]" }}
{{- end }}
{{- end }}

{{/* What a component exports and where to, but for the collector's authorities: flags, one a line. */}}
{{- define "aether.otelFlags" -}}
{{- with .Values.otel }}
{{- if .enabled }}
- --otel-enabled
{{- end }}
{{- with .endpoint }}
- --otlp-endpoint={{ . }}
{{- end }}
{{- if .tls.enabled }}
- --otlp-tls
{{- with .tls.serverName }}
- --otlp-server-name={{ . }}
{{- end }}
{{- end }}
{{- if .logs }}
- --logs-enabled
{{- end }}
- --trace-sample-rate={{ .traceSampleRate }}
{{- if .traceExport }}
- --trace-export
{{- end }}
{{- end }}
{{- end }}

{{/* Which pod it is, as the container's own variables. Said in full, or two who apply it differ. */}}
{{- define "aether.podEnvironment" -}}
- name: POD_NAME
  valueFrom: {fieldRef: {apiVersion: v1, fieldPath: metadata.name}}
- name: POD_NAMESPACE
  valueFrom: {fieldRef: {apiVersion: v1, fieldPath: metadata.namespace}}
# What its telemetry is of.
- {name: OTEL_RESOURCE_ATTRIBUTES, value: "k8s.pod.name=$(POD_NAME),k8s.namespace.name=$(POD_NAMESPACE)"}
{{- end }}

{{/* What every pod of ours has: the pod security standard "restricted". */}}
{{- define "aether.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* The same of every container. */}}
{{- define "aether.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/*
Where pods of a component may run. Takes (dict "root" $ "component" NAME "at" VALUES). Without
constraints of the user's they are spread over nodes where that is possible, those of one version among
themselves. Not over zones: nodes that have no label of the key would not be spread over at all.
*/}}
{{- define "aether.scheduling" -}}
{{- with .at.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .at.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .at.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .at.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- $selector := dict "matchLabels" (include "aether.selector" . | fromYaml) }}
{{- $spread := .at.topologySpreadConstraints }}
{{- if not $spread }}
{{- $spread = list (dict "topologyKey" "kubernetes.io/hostname" "maxSkew" 1 "whenUnsatisfiable" "ScheduleAnyway" "matchLabelKeys" (list "pod-template-hash")) }}
{{- end }}
topologySpreadConstraints:
  {{- range $spread }}
  - labelSelector: {{- toYaml $selector | nindent 6 }}
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}

{{/* What the schema cannot say of values: how they relate. */}}
{{- define "aether.check" -}}
{{- with .Values.otel }}
{{- if not .enabled }}
{{- range $name := list "logs" "traceExport" }}
{{- if index $.Values.otel $name }}
{{- fail (printf "otel.%s has no effect while otel.enabled is false: set both, or have a MeshConfig turn on what it should" $name) }}
{{- end }}
{{- end }}
{{- end }}
{{- if and .traceExport (not .endpoint) }}
{{- fail "otel.traceExport needs otel.endpoint: there is nowhere else that traces could go" }}
{{- end }}
{{- if and .tls.enabled (not .endpoint) }}
{{- fail "otel.tls.enabled needs otel.endpoint: it is TLS to the collector" }}
{{- end }}
{{- if and (not .tls.enabled) (or .tls.caConfigMap .tls.serverName) }}
{{- fail "otel.tls.caConfigMap and otel.tls.serverName are for TLS to the collector, and otel.tls.enabled is false: without it they would protect nothing" }}
{{- end }}
{{- if and .tls.enabled (not .tls.serverName) (regexMatch "^([0-9.]+|\\[.*\\]):[0-9]+$" .endpoint) }}
{{- fail (printf "otel.endpoint %s is an address, which no certificate's name is compared with: set otel.tls.serverName" .endpoint) }}
{{- end }}
{{- end }}
{{- with .Values.gatewayClass.parameters }}
{{- $watched := include "aether.watched" $ | fromJsonArray }}
{{- if and .namespace $watched (not (has .namespace $watched)) }}
{{- fail (printf "gatewayClass.parameters.namespace %s is not among watchNamespaces, so nothing that is in it would be seen" .namespace) }}
{{- end }}
{{- end }}
{{- with .Values.sharedProxy.drain }}
{{- if le (int .timeoutSeconds) (int .delaySeconds) }}
{{- fail (printf "sharedProxy.drain.timeoutSeconds %v is not longer than delaySeconds %v, which it includes" .timeoutSeconds .delaySeconds) }}
{{- end }}
{{- end }}
{{- with .Values.discovery }}
{{- if eq (int .port) (int .bootstrapPort) }}
{{- fail (printf "discovery.port and discovery.bootstrapPort are both %v" .port) }}
{{- end }}
{{- range $name, $port := dict "port" .port "bootstrapPort" .bootstrapPort }}
{{- if has (int $port) (list 8080 8082 8083 9443) }}
{{- fail (printf "discovery.%s %v is a port that the controller has for something else" $name $port) }}
{{- end }}
{{- end }}
{{- end }}
{{- if and .Values.webhook.enabled (gt (len (include "aether.webhook" .)) 63) }}
{{- fail (printf "a release that is named %s has no room for its Service %s, as 63 characters are the most: name it otherwise, or set webhook.enabled=false" .Release.Name (include "aether.webhook" .)) }}
{{- end }}
{{- end }}
