{{- define "gpusteward.image" -}}
{{- with .Values.image.registry }}{{ trimSuffix "/" . }}/{{ end }}{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{/* What a selector selects by: of a list with the context and a name. */}}
{{- define "gpusteward.selector" -}}
app.kubernetes.io/name: {{ index . 1 }}
app.kubernetes.io/part-of: gpusteward
{{- end -}}

{{- define "gpusteward.labels" -}}
{{- $context := index . 0 -}}
{{ include "gpusteward.selector" . }}
app.kubernetes.io/instance: {{ $context.Release.Name }}
app.kubernetes.io/version: {{ $context.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $context.Release.Service }}
helm.sh/chart: {{ $context.Chart.Name }}-{{ $context.Chart.Version }}
{{- end -}}

{{/* Where pods of ours are put, but for the agents'. */}}
{{- define "gpusteward.placement" -}}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "gpusteward.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end -}}

{{- define "gpusteward.user" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001  # reads the Secrets, writes the journal
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "gpusteward.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* A link that the service makes once it answers. It ends by itself when a loop of it fails: no liveness probe. */}}
{{- define "gpusteward.ready" -}}
exec: {command: [test, -e, /tmp/ready]}
periodSeconds: 5
{{- end -}}

{{/* Settings that are read once, when a process starts: a change of them replaces the pods. */}}
{{- define "gpusteward.annotations" -}}
{{- $context := index . 0 -}}
checksum/settings: {{ index . 1 | toJson | sha256sum }}
{{- with $context.Values.podAnnotations }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "gpusteward.egress" -}}
- ports: [{protocol: UDP, port: 53}, {protocol: TCP, port: 53}]
{{- with .Values.networkPolicies.extraEgress }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "gpusteward.apiAndNats" -}}
- ports:
    - {protocol: TCP, port: {{ .Values.networkPolicies.natsPort }}}
    {{- range .Values.networkPolicies.apiPorts }}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
{{- end -}}

{{/* What is spoken with the gateway and the agents. */}}
{{- define "gpusteward.scheme" -}}
{{ .Values.insecurePlaintext | ternary "http" "https" }}
{{- end -}}

{{- define "gpusteward.gatewaySecret" -}}
{{ .Values.tls.gatewaySecret | default "gateway-tls" }}
{{- end -}}

{{- define "gpusteward.agentsSecret" -}}
{{ .Values.tls.agentsSecret | default "telemetry-tls" }}
{{- end -}}

{{/* Settings that all parts have of the bus. */}}
{{- define "gpusteward.busSettings" -}}
{{- if and (contains "nats://" .Values.nats.url) (not .Values.insecurePlaintext) -}}
{{- fail (printf "nats.url %s would not be encrypted: expected tls://, or insecurePlaintext=true, with which everybody on the way reads passwords and data" .Values.nats.url) -}}
{{- end -}}
GPUSTEWARD_NATS_URL: {{ .Values.nats.url | quote }}
GPUSTEWARD_INSTALLATION_ID: {{ .Values.installationId | quote }}
{{- if .Values.nats.caSecret }}
GPUSTEWARD_NATS_CA: /run/nats-ca/ca.crt
{{- end }}
{{- if .Values.insecurePlaintext }}
GPUSTEWARD_INSECURE_PLAINTEXT: "true"
{{- end }}
{{- end -}}

{{/* Of a list with the names of a Secret and its mount: what a container and a pod have of it. */}}
{{- define "gpusteward.mount" -}}
{{- if index . 0 }}
- {name: {{ index . 1 }}, mountPath: /run/{{ index . 1 }}, readOnly: true}
{{- end }}
{{- end -}}

{{- define "gpusteward.volume" -}}
{{- if index . 0 }}
- name: {{ index . 1 }}
  secret: {secretName: {{ index . 0 }}, defaultMode: 0440}
{{- end }}
{{- end -}}

{{/* The settings of each part, as the services read them; what is given by hand comes last. */}}
{{- define "gpusteward.platformSettings" -}}
{{- $settings := include "gpusteward.busSettings" . | fromYaml -}}
{{- $_ := set $settings "GPUSTEWARD_SCHEDULER_ADMIT_NODES" (join "," .Values.platform.admitNodes) -}}
{{- toYaml (mergeOverwrite $settings .Values.platform.settings) -}}
{{- end -}}

{{- define "gpusteward.clusterSettings" -}}
{{- $settings := merge (include "gpusteward.busSettings" . | fromYaml) (dict
  "GPUSTEWARD_NODE_ID" .Values.cluster.nodeId
  "GPUSTEWARD_EXECUTOR_CLUSTER" "true"
  "GPUSTEWARD_EXECUTOR_CLUSTER_NAMESPACE" (first .Values.engines.namespaces)) -}}
{{- toYaml (mergeOverwrite $settings .Values.cluster.settings) -}}
{{- end -}}

{{/* Kubernetes gives these GPUs out: requests that are not for this cluster never get them. */}}
{{- define "gpusteward.agentSettings" -}}
{{- $settings := include "gpusteward.busSettings" . | fromYaml -}}
{{- $_ := set $settings "GPUSTEWARD_TELEMETRY_LABELS" (printf "gpusteward.io/cluster=%s" .Values.cluster.nodeId) -}}
{{- toYaml (mergeOverwrite $settings .Values.agents.settings) -}}
{{- end -}}
