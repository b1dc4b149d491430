{{/* Variables of the ConfigMap, as YAML. */}}
{{- define "tollgate.settings" -}}
{{- $all := dict
  "TOLLGATE_CONFIG" "/etc/tollgate/rules"
  "TOLLGATE_LOG_FORMAT" "json"
  "TOLLGATE_WORKERS" (.Values.workers | toString)
  "TOLLGATE_DRAIN_DELAY" "10s"
  "TOLLGATE_DRAIN_TIMEOUT" "10s" -}}
{{- if eq .Values.store.kind "memory" }}{{ $_ := set $all "TOLLGATE_STORE" "memory" }}{{ end -}}
{{- if .Values.store.caSecret }}{{ $_ := set $all "TOLLGATE_REDIS_CA" "/etc/tollgate/redis/ca.crt" }}{{ end -}}
{{- if .Values.ipv6 -}}
{{- $_ := set $all "TOLLGATE_GRPC_ADDRESS" "[::]:8081" -}}
{{- $_ := set $all "TOLLGATE_HTTP_ADDRESS" "[::]:8080" -}}
{{- end -}}
{{- if .Values.tls.enabled -}}
{{- $_ := set $all "TOLLGATE_GRPC_TLS" "/etc/tollgate/tls/tls.crt,/etc/tollgate/tls/tls.key" -}}
{{- if .Values.tls.clientCertificates }}{{ $_ := set $all "TOLLGATE_GRPC_TLS_CLIENT_CA" "/etc/tollgate/tls/ca.crt" }}{{ end -}}
{{- end -}}
{{- if .Values.operators.enabled -}}
{{- $_ := set $all "TOLLGATE_RULES" (ternary "memory" "redis" (eq .Values.store.kind "memory")) -}}
{{- $_ := set $all "TOLLGATE_ADMIN_ADDRESS" "0.0.0.0:6070" -}}
{{- $_ := set $all "TOLLGATE_ADMIN_TOKEN_FILE" "/etc/tollgate/operators/tokens" -}}
{{- end -}}
{{- if .Values.regions.enabled -}}
{{- $_ := set $all "TOLLGATE_REGION" .Values.regions.region -}}
{{- $_ := set $all "TOLLGATE_REGIONS" "/etc/tollgate/regions/regions.yaml" -}}
{{- $_ := set $all "TOLLGATE_REGION_ADDRESS" "0.0.0.0:8444" -}}
{{- $files := "/etc/tollgate/region-tls/tls.crt,/etc/tollgate/region-tls/tls.key,/etc/tollgate/region-tls/ca.crt" -}}
{{- $_ := set $all "TOLLGATE_REGION_TLS" $files -}}
{{- end -}}
{{- range $name, $value := .Values.settings }}{{ $_ := set $all $name ($value | toString) }}{{ end -}}
{{- range $name, $value := $all }}
{{ $name }}: {{ $value | quote }}
{{- end }}
{{- end -}}

{{/* Values that fit the schema and cannot work. */}}
{{- define "tollgate.check" -}}
{{- if and (eq .Values.store.kind "external") (not .Values.store.url) (not .Values.store.existingSecret) -}}
{{- fail "store: no Redis; expected store.url, store.existingSecret, or store.kind memory for a trial" -}}
{{- end -}}
{{- if and (ne .Values.store.kind "external") (or .Values.store.url .Values.store.existingSecret) -}}
{{- fail (printf "store: a URL beside store.kind %s; expected store.kind external" .Values.store.kind) -}}
{{- end -}}
{{- if and .Values.store.url .Values.store.existingSecret -}}
{{- fail "store: url and existingSecret; expected one of them" -}}
{{- end -}}
{{- if and .Values.rules.existingConfigMap .Values.rules.files -}}
{{- fail "rules: files and existingConfigMap; expected one of them" -}}
{{- end -}}
{{- if and .Values.regions.enabled (eq .Values.store.kind "memory") -}}
{{- fail "regions: store.kind memory; expected a Redis in each region" -}}
{{- end -}}
{{- if .Values.regions.enabled -}}
{{- if not (hasKey (.Values.regions.table.regions | default dict) .Values.regions.region) -}}
{{- fail (printf "regions.region: %q is not in regions.table.regions; expected one of its names" .Values.regions.region) -}}
{{- end -}}
{{- end -}}
{{- end -}}
