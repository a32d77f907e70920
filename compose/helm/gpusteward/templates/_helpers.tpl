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

{{/* The settings of each part, as the services read them; what is given by hand comes last. */}}
{{- define "gpusteward.platformSettings" -}}
{{- $settings := dict
  "GPUSTEWARD_NATS_URL" .Values.nats.url
  "GPUSTEWARD_INSTALLATION_ID" .Values.installationId
  "GPUSTEWARD_SCHEDULER_ADMIT_NODES" (join "," .Values.platform.admitNodes) -}}
{{- toYaml (mergeOverwrite $settings .Values.platform.settings) -}}
{{- end -}}

{{- define "gpusteward.clusterSettings" -}}
{{- $settings := dict
  "GPUSTEWARD_NODE_ID" .Values.cluster.nodeId
  "GPUSTEWARD_NATS_URL" .Values.nats.url
  "GPUSTEWARD_INSTALLATION_ID" .Values.installationId
  "GPUSTEWARD_EXECUTOR_CLUSTER" "true"
  "GPUSTEWARD_EXECUTOR_CLUSTER_NAMESPACE" (first .Values.engines.namespaces) -}}
{{- toYaml (mergeOverwrite $settings .Values.cluster.settings) -}}
{{- end -}}

{{/* Kubernetes gives these GPUs out: requests that are not for this cluster never get them. */}}
{{- define "gpusteward.agentSettings" -}}
{{- $settings := dict
  "GPUSTEWARD_NATS_URL" .Values.nats.url
  "GPUSTEWARD_INSTALLATION_ID" .Values.installationId
  "GPUSTEWARD_TELEMETRY_LABELS" (printf "gpusteward.io/cluster=%s" .Values.cluster.nodeId) -}}
{{- toYaml (mergeOverwrite $settings .Values.agents.settings) -}}
{{- end -}}
