{{/*
The Deployment of a mode. Takes root, mode, replicas, args, ports, probes, and optionally env, volumes, mounts and
annotations (of its pods), and marks, which are its own annotations. A Deployment of one replica that must not run twice
asks for `recreate`.
*/}}
{{- define "backoff-ctrl.deployment" -}}
{{- $given := get .root.Values .mode -}}
{{- $pods := mergeOverwrite (deepCopy .root.Values.pods) (deepCopy $given.pods) -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  {{- include "backoff-ctrl.metadata" . | nindent 2 }}
  {{- with .marks }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  replicas: {{ .replicas }}
  revisionHistoryLimit: 3
  {{- if .recreate }}
  strategy:
    type: Recreate
  {{- else }}
  strategy:
    type: RollingUpdate
    rollingUpdate:
      maxUnavailable: 0
      maxSurge: 1
  {{- end }}
  selector:
    matchLabels:
      {{- include "backoff-ctrl.selector" . | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "backoff-ctrl.labels" . | nindent 8 }}
        {{- with $pods.labels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with merge (dict) (default (dict) .annotations) $pods.annotations }}
      annotations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      serviceAccountName: {{ include "backoff-ctrl.account" . }}
      enableServiceLinks: false
      terminationGracePeriodSeconds: 30
      {{- with .root.Values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $pods.priorityClassName }}
      priorityClassName: {{ . | quote }}
      {{- end }}
      {{- with $pods.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $pods.affinity }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $pods.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $pods.topologySpreadConstraints }}
      topologySpreadConstraints:
        {{- $own := dict "labelSelector" (dict "matchLabels" (include "backoff-ctrl.selector" $ | fromYaml)) }}
        {{- range . }}
        - {{- toYaml (merge (deepCopy .) $own) | nindent 10 }}
        {{- end }}
      {{- end }}
      {{- with $pods.securityContext }}
      securityContext:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      containers:
        - name: backoff-ctrl
          image: {{ include "backoff-ctrl.image" .root }}
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          args:
            {{- toYaml (concat .args $given.extraArgs) | nindent 12 }}
          {{- with concat (default (list) .env) $pods.extraEnv }}
          env:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          ports:
            {{- toYaml .ports | nindent 12 }}
          {{- toYaml .probes | nindent 10 }}
          {{- with $given.resources }}
          resources:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          {{- with $pods.containerSecurityContext }}
          securityContext:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          volumeMounts:
            - name: tmp
              mountPath: /tmp
            {{- with concat (default (list) .mounts) $pods.extraVolumeMounts }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
      volumes:
        - name: tmp
          emptyDir:
            sizeLimit: 16Mi
        {{- with concat (default (list) .volumes) $pods.extraVolumes }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
{{- end -}}

{{/* Probes that ask /livez and /readyz. Takes port and scheme. */}}
{{- define "backoff-ctrl.probes" -}}
startupProbe:
  httpGet: {path: /livez, port: {{ .port }}, scheme: {{ .scheme }}}
  initialDelaySeconds: 1
  periodSeconds: 1
  timeoutSeconds: 10
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /livez, port: {{ .port }}, scheme: {{ .scheme }}}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: {{ default "/readyz" .ready }}, port: {{ .port }}, scheme: {{ .scheme }}}
  periodSeconds: 5
  timeoutSeconds: 3
{{- end -}}
