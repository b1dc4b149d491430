{{- define "tollgate.name" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains "tollgate" .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-tollgate" (.Release.Name | trunc 31 | trimSuffix "-") -}}
{{- end -}}
{{- end -}}

{{- define "tollgate.selector" -}}
app.kubernetes.io/name: tollgate
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: server
{{- end -}}

{{- define "tollgate.release" -}}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/part-of: tollgate
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{- define "tollgate.labels" -}}
app.kubernetes.io/name: tollgate
{{ include "tollgate.release" . }}
{{- end -}}

{{- define "tollgate.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "tollgate.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (ternary (include "tollgate.name" .) "default" .Values.serviceAccount.create) -}}
{{- end -}}

{{/* The name of the Redis in the chart, e.g. tollgate-redis-cluster; empty without one. */}}
{{- define "tollgate.redis" -}}
{{- if hasPrefix "redis-" .Values.store.kind -}}{{ include "tollgate.name" . }}-{{ .Values.store.kind }}{{- end -}}
{{- end -}}

{{- define "tollgate.redisSelector" -}}
app.kubernetes.io/name: {{ .Values.store.kind }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* `name:port` of all pods of the Redis in the chart. */}}
{{- define "tollgate.redisPods" -}}
{{- $redis := include "tollgate.redis" .root -}}
{{- range $index := until .pods -}}
{{ if $index }} {{ end }}{{ $redis }}-{{ $index }}.{{ $redis }}:{{ $.port }}
{{- end -}}
{{- end -}}

{{- define "tollgate.storeSecret" -}}
{{- .Values.store.existingSecret | default (printf "%s-store" (include "tollgate.name" .)) -}}
{{- end -}}

{{- define "tollgate.storeUrl" -}}
{{- if eq .Values.store.kind "redis-cluster" -}}
redis+cluster://{{ include "tollgate.redis" . }}:6379
{{- else if eq .Values.store.kind "redis-sentinel" -}}
redis+sentinel://{{ include "tollgate.redisPods" (dict "root" . "pods" 3 "port" 26379) | replace " " "," }}/tollgate
{{- else -}}
{{ .Values.store.url }}
{{- end -}}
{{- end -}}

{{- define "tollgate.rules" -}}
{{- .Values.rules.existingConfigMap | default (printf "%s-rules" (include "tollgate.name" .)) -}}
{{- end -}}

{{- define "tollgate.tlsSecret" -}}
{{- .Values.tls.secret | default (printf "%s-tls" (include "tollgate.name" .)) -}}
{{- end -}}

{{- define "tollgate.regionSecret" -}}
{{- .Values.regions.secret | default (printf "%s-region-tls" (include "tollgate.name" .)) -}}
{{- end -}}

{{/* Files by name, each a text or its YAML. */}}
{{- define "tollgate.files" -}}
{{- range $name, $content := . }}
{{ $name }}: |
  {{- if kindIs "string" $content }}
  {{- $content | nindent 2 }}
  {{- else }}
  {{- toYaml $content | nindent 2 }}
  {{- end }}
{{- end }}
{{- end -}}
