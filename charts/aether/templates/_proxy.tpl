{{/*
The pod of a proxy, a PodTemplateSpec. Takes (dict "root" $ "shared" VALUES): with the values of the
shared proxies it is theirs; without any it is what the controller makes dedicated Gateways' from, with
a scope, an account, labels and a drain time of its own in the place of these.

aether-proxy is a native sidecar: Envoy starts when it has written the bootstrap, and is ended before
it. Both wait in preStop until the connections are drained, so Envoy, which ends at once when it is
told to, is told to last. Nobody on the network can start a drain: /drained only waits.
*/}}
{{- define "aether.proxyPod" -}}
{{- $shared := .shared }}
{{- with .root -}}
{{- $drain := .Values.sharedProxy.drain }}
{{- $grace := add $drain.timeoutSeconds 15 -}}
metadata:
  labels:
    {{- if $shared }}
    {{- include "aether.selector" (dict "root" . "component" "shared-proxy") | nindent 4 }}
    {{- with $shared.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- else }}
    app.kubernetes.io/name: aether
    {{- end }}
  {{- with $shared }}
  {{- with .podAnnotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
spec:
  serviceAccountName: coxswain-shared-proxy
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ $grace }}
  securityContext: {{- include "aether.podSecurity" . | nindent 4 }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $shared }}
  {{- include "aether.scheduling" (dict "root" $.root "component" "shared-proxy" "at" .) | trim | nindent 2 }}
  {{- end }}
  initContainers:
    - name: aether-proxy
      image: {{ include "aether.image" (dict "root" . "image" .Values.images.proxy) | quote }}
      imagePullPolicy: {{ .Values.imagePullPolicy }}
      restartPolicy: Always
      args:
        - --scope=shared
        - --proxy-id=$(POD_NAME)
        - --discovery-endpoint=https://{{ include "aether.discoveryHost" . }}:{{ .Values.discovery.port }}
        - --discovery-bootstrap-endpoint=https://{{ include "aether.discoveryHost" . }}:{{ .Values.discovery.bootstrapPort }}
        - --discovery-trust-domain={{ .Values.discovery.trustDomain }}
        - --discovery-server-id={{ include "aether.controllerID" . }}
        - --discovery-sa-token-path=/var/run/secrets/coxswain/discovery-token/token
        - --discovery-ca-bundle-path=/var/run/secrets/coxswain/trust-bundle/ca.crt
        - --xds-socket=/var/run/aether/xds.sock
        - --envoy-admin-socket=/var/run/aether/admin.sock
        - --envoy-bootstrap=/var/run/aether/envoy.json
        - --last-good-dir=/var/run/aether/last-good
        - --inspect-port=8083
        - --metrics-bind-address=:8080
        - --health-probe-bind-address=:8082
        - --drain-socket=/var/run/aether/drain.sock
        - --drain-delay={{ $drain.delaySeconds }}s
        - --drain-timeout={{ $drain.timeoutSeconds }}s
        {{- if and .Values.otel.enabled .Values.otel.endpoint }}
        {{- include "aether.otelFlags" . | trim | nindent 8 }}
        {{- if .Values.otel.tls.caConfigMap }}
        - --otlp-ca-discovered
        {{- end }}
        {{- end }}
        {{- if .Values.proxy.debug }}
        - --debug
        {{- end }}
      env:
        {{- include "aether.podEnvironment" . | nindent 8 }}
      ports:
        - {name: metrics, containerPort: 8080}
        - {name: health, containerPort: 8082}
      startupProbe:
        httpGet: {path: /startz, port: health}
        periodSeconds: 1
        failureThreshold: 60
      readinessProbe:
        httpGet: {path: /readyz, port: health}
        periodSeconds: 2
        timeoutSeconds: 2
        failureThreshold: 2
      livenessProbe:
        httpGet: {path: /healthz, port: health}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      lifecycle:
        preStop:
          exec: {command: [/usr/local/bin/aether-proxy, drain, --drain-socket=/var/run/aether/drain.sock, --timeout={{ $grace }}s]}
      resources: {{- toYaml .Values.proxy.resources | nindent 8 }}
      securityContext: {{- include "aether.containerSecurity" . | nindent 8 }}
      volumeMounts:
        - {name: run, mountPath: /var/run/aether}
        - {name: discovery-token, mountPath: /var/run/secrets/coxswain/discovery-token, readOnly: true}
        - {name: trust-bundle, mountPath: /var/run/secrets/coxswain/trust-bundle, readOnly: true}
  containers:
    - name: envoy
      image: {{ include "aether.image" (dict "root" . "image" .Values.images.envoy) | quote }}
      imagePullPolicy: {{ .Values.imagePullPolicy }}
      command:
        - envoy
        - --config-path
        - /var/run/aether/envoy.json
        - --log-level
        - {{ .Values.proxy.envoy.logLevel | quote }}
        {{- with .Values.proxy.envoy.concurrency }}
        - --concurrency
        - {{ . | quote }}
        {{- end }}
        - --disable-hot-restart
      env:
        {{- include "aether.podEnvironment" . | nindent 8 }}
      readinessProbe:
        httpGet: {path: /readyz, port: 8082}
        periodSeconds: 2
        timeoutSeconds: 2
        failureThreshold: 2
      lifecycle:
        preStop:
          httpGet: {path: /drained, port: 8082}
      resources: {{- toYaml .Values.proxy.envoy.resources | nindent 8 }}
      securityContext: {{- include "aether.containerSecurity" . | nindent 8 }}
      volumeMounts:
        - {name: run, mountPath: /var/run/aether}
  volumes:
    - name: run
      emptyDir: {medium: Memory}
    - name: discovery-token
      projected:
        sources:
          - serviceAccountToken: {audience: coxswain-discovery, path: token, expirationSeconds: 3600}
    - name: trust-bundle
      configMap: {name: coxswain-discovery-trust}
{{- end }}
{{- end }}
