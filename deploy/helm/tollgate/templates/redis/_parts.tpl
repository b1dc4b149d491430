{{/* Service, disruption budget and scripts of the Redis in the chart. */}}
{{- define "tollgate.redisSurroundings" -}}
{{- $redis := include "tollgate.redis" . -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ $redis }}
  namespace: {{ .Release.Namespace }}
  labels: {{- include "tollgate.redisLabels" . | nindent 4 }}
spec:
  clusterIP: None
  # The nodes have to discover each other before they are ready.
  publishNotReadyAddresses: true
  selector: {{- include "tollgate.redisSelector" . | nindent 4 }}
  ports:
  - {name: redis, port: 6379}
  {{- if eq .Values.store.kind "redis-sentinel" }}
  - {name: sentinel, port: 26379}
  {{- end }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ $redis }}
  namespace: {{ .Release.Namespace }}
  labels: {{- include "tollgate.redisLabels" . | nindent 4 }}
spec:
  # One at a time: a shard whose two nodes stop together is lost, and of three sentinels two have to agree.
  maxUnavailable: 1
  selector:
    matchLabels: {{- include "tollgate.redisSelector" . | nindent 6 }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ $redis }}
  namespace: {{ .Release.Namespace }}
  labels: {{- include "tollgate.redisLabels" . | nindent 4 }}
data:
  {{- range $path, $content := .Files.Glob (printf "files/%s/*" .Values.store.kind) }}
  {{ base $path }}: |
    {{- $content | toString | nindent 4 }}
  {{- end }}
{{- end -}}

{{- define "tollgate.redisLabels" -}}
app.kubernetes.io/name: {{ .Values.store.kind }}
{{ include "tollgate.release" . }}
{{- end -}}

{{- define "tollgate.redisChecksum" -}}
{{- $all := "" -}}
{{- range $path, $content := .Files.Glob (printf "files/%s/*" .Values.store.kind) }}{{ $all = printf "%s%s" $all ($content | toString) }}{{ end -}}
checksum/config: {{ $all | sha256sum }}
{{- end -}}

{{- define "tollgate.redisPodSecurity" -}}
runAsNonRoot: true
runAsUser: 999
runAsGroup: 999
fsGroup: 999
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "tollgate.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}
