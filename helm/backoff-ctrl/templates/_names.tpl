{{/*
The name of the objects: the release's, or what fullnameOverride says. A mode's name is added to it. Services are called
so, too: releases may have dots and begin with a digit, Services may not.
*/}}
{{- define "backoff-ctrl.fullname" -}}
{{- $release := .Release.Name | replace "." "-" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 43 | trimSuffix "-" -}}
{{- else if not (regexMatch "^[a-z]" $release) -}}
{{- fail (printf "fullnameOverride must be set: release %s begins with a digit, and Services are called by it" .Release.Name) -}}
{{- else if contains .Chart.Name $release -}}
{{- $release | trunc 43 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" $release .Chart.Name | trunc 43 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The objects of a mode. Takes root and mode. */}}
{{- define "backoff-ctrl.name" -}}
{{- $short := dict "injection" "inject" "gateway" "gateway" "serve" "serve" "operator" "operator" "webhooks" "webhooks" -}}
{{- printf "%s-%s" (include "backoff-ctrl.fullname" .root) (get $short .mode) -}}
{{- end -}}

{{/*
The name of objects that belong to no namespace: two releases of one name may be in one cluster. One that is too long
ends with a sum of all of it: cut alone it could be that of another namespace. Takes a part, where a mode has several.
*/}}
{{- define "backoff-ctrl.clusterName" -}}
{{- $whole := printf "%s-%s" (include "backoff-ctrl.name" .) .root.Release.Namespace -}}
{{- with .part -}}{{- $whole = printf "%s-%s" $whole . -}}{{- end -}}
{{- if gt (len $whole) 63 -}}
{{- printf "%s-%s" ($whole | trunc 54 | trimSuffix "-") ($whole | sha256sum | trunc 8) -}}
{{- else -}}
{{- $whole -}}
{{- end -}}
{{- end -}}

{{/*
The kinds that can wait suspended, as rules of a role. Takes root and verbs. The kinds are those of
k8s/workloads/admitting/kinds.py, which a test compares, and those that the values describe.
*/}}
{{- define "backoff-ctrl.jobKinds" -}}
- apiGroups: [batch]
  resources: [jobs]
  verbs: {{ .verbs }}
- apiGroups: [jobset.x-k8s.io]
  resources: [jobsets]
  verbs: {{ .verbs }}
- apiGroups: [ray.io]
  resources: [rayjobs, rayclusters]
  verbs: {{ .verbs }}
- apiGroups: [kubeflow.org]
  resources: [pytorchjobs, tfjobs, xgboostjobs, jaxjobs, paddlejobs, mpijobs]
  verbs: {{ .verbs }}
- apiGroups: [trainer.kubeflow.org]
  resources: [trainjobs]
  verbs: {{ .verbs }}
- apiGroups: [sparkoperator.k8s.io]
  resources: [sparkapplications]
  verbs: {{ .verbs }}
{{- range .root.Values.operator.kinds }}
- apiGroups: [{{ get .resource "api-version" | splitList "/" | first }}]
  resources: [{{ .resource.plural }}]
  verbs: {{ $.verbs }}
{{- end }}
{{- end -}}

{{/* A value as text: helm reads numbers as floats, and would write ten millions as 1e+07. */}}
{{- define "backoff-ctrl.text" -}}
{{- if kindIs "string" . -}}{{- . -}}{{- else -}}{{- toJson . -}}{{- end -}}
{{- end -}}

{{- define "backoff-ctrl.account" -}}
{{- $given := get .root.Values .mode -}}
{{- default (include "backoff-ctrl.name" .) $given.serviceAccount.name -}}
{{- end -}}

{{- define "backoff-ctrl.selector" -}}
app.kubernetes.io/name: backoff-ctrl
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .mode }}
{{- end -}}

{{- define "backoff-ctrl.labels" -}}
{{ include "backoff-ctrl.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name (.root.Chart.Version | replace "+" "_") }}
{{- end -}}

{{- define "backoff-ctrl.metadata" -}}
name: {{ include "backoff-ctrl.name" . }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "backoff-ctrl.labels" . | nindent 2 }}
{{- end -}}

{{- define "backoff-ctrl.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{/* The modes that are on, separated by commas. */}}
{{- define "backoff-ctrl.modes" -}}
{{- $modes := list -}}
{{- range list "injection" "gateway" "serve" "operator" -}}
{{- if (get $.Values .).enabled -}}{{- $modes = append $modes . -}}{{- end -}}
{{- end -}}
{{- if .Values.operator.enabled -}}{{- $modes = append $modes "webhooks" -}}{{- end -}}
{{- join "," $modes -}}
{{- end -}}

{{/* The Secret with a mode's certificate. */}}
{{- define "backoff-ctrl.tlsSecret" -}}
{{- $tls := (get .root.Values .mode).tls -}}
{{- default (printf "%s-tls" (include "backoff-ctrl.name" .)) $tls.existingSecret -}}
{{- end -}}

{{/* Whether the cluster knows the kinds of the Prometheus operator, and they are wanted; empty: no. */}}
{{- define "backoff-ctrl.monitored" -}}
{{- if and .Values.monitoring.enabled (.Capabilities.APIVersions.Has "monitoring.coreos.com/v1") -}}yes{{- end -}}
{{- end -}}

{{/*
`backoff-ctrl uninstall` notes there what it has stopped. Empty here: helm starts it again, and the note is forgotten.
*/}}
{{- define "backoff-ctrl.unstopped" -}}
backoff-ctrl.dev/stopped: ""
{{- end -}}

{{/* The namespaces that arguments of the operator name, as a list under `found`; none: it works for all. */}}
{{- define "backoff-ctrl.namespacesOf" -}}
{{- $found := list -}}
{{- range .args -}}
{{- if hasPrefix "--namespace=" . -}}{{- $found = append $found (trimPrefix "--namespace=" .) -}}{{- end -}}
{{- end -}}
{{- dict "found" (uniq $found) | toYaml -}}
{{- end -}}

{{/* The namespaces that the operator of this revision works for, in the same form. */}}
{{- define "backoff-ctrl.namespaces" -}}
{{- $args := list -}}
{{- range .Values.operator.namespaces -}}{{- $args = append $args (printf "--namespace=%s" .) -}}{{- end -}}
{{- include "backoff-ctrl.namespacesOf" (dict "args" (concat $args .Values.operator.extraArgs)) -}}
{{- end -}}

{{/* The kinds that the operator in the cluster lets in, as its ConfigMap describes them, as a list under `found`. */}}
{{- define "backoff-ctrl.kindsThere" -}}
{{- $name := include "backoff-ctrl.name" (dict "root" . "mode" "operator") -}}
{{- $found := list -}}
{{- with lookup "v1" "ConfigMap" .Release.Namespace $name -}}
{{- range get (default (dict) .data) "kinds.yaml" | splitList "---\n" -}}
{{- with fromYaml . -}}{{- if .resource -}}{{- $found = append $found . -}}{{- end -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- dict "found" $found | toYaml -}}
{{- end -}}

{{/* The name of a described kind, as `--keep-kind` has it. */}}
{{- define "backoff-ctrl.kindName" -}}
{{- printf "%s.%s" .resource.plural (get .resource "api-version" | splitList "/" | first) -}}
{{- end -}}

{{/*
Whether this revision's operator works for fewer namespaces or kinds than the one in the cluster; empty: it does not, so
that an upgrade need not start a pod for nothing. Where the cluster can't be asked, it may.
*/}}
{{- define "backoff-ctrl.operatorNarrows" -}}
{{- if .Values.operator.enabled -}}
{{- $name := include "backoff-ctrl.name" (dict "root" . "mode" "operator") -}}
{{- $new := (include "backoff-ctrl.namespaces" . | fromYaml).found -}}
{{- $kinds := list -}}
{{- range .Values.operator.kinds -}}{{- $kinds = append $kinds (include "backoff-ctrl.kindName" .) -}}{{- end -}}
{{- if not (and .Release.IsUpgrade (lookup "v1" "ConfigMap" .Release.Namespace "kube-root-ca.crt")) -}}
yes
{{- else -}}
{{- $narrows := "" -}}
{{- with lookup "apps/v1" "Deployment" .Release.Namespace $name -}}
{{- $args := (first .spec.template.spec.containers).args -}}
{{- $old := (include "backoff-ctrl.namespacesOf" (dict "args" $args) | fromYaml).found -}}
{{- if and $new (not $old) -}}{{- $narrows = "yes" -}}{{- end -}}
{{- range $old -}}{{- if and $new (not (has . $new)) -}}{{- $narrows = "yes" -}}{{- end -}}{{- end -}}
{{- end -}}
{{- range (include "backoff-ctrl.kindsThere" . | fromYaml).found -}}
{{- if not (has (include "backoff-ctrl.kindName" .) $kinds) -}}{{- $narrows = "yes" -}}{{- end -}}
{{- end -}}
{{- $narrows -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
Whether this revision may take an operator of its release away; empty: the cluster has none, so that an upgrade need not
start a pod for nothing. Where the cluster can't be asked (`helm template`), not even the ConfigMap is found that every
namespace has.
*/}}
{{- define "backoff-ctrl.operatorMayLeave" -}}
{{- if not .Values.operator.enabled -}}
{{- $name := include "backoff-ctrl.name" (dict "root" . "mode" "operator") -}}
{{- $asked := and .Release.IsUpgrade (lookup "v1" "ConfigMap" .Release.Namespace "kube-root-ca.crt") -}}
{{- if or (not $asked) (lookup "apps/v1" "Deployment" .Release.Namespace $name) -}}yes{{- end -}}
{{- end -}}
{{- end -}}
