# The image of backoff-ctrl: `docker buildx build --platform linux/amd64,linux/arm64 -t NAME:VERSION .`
#
# Two stages from one base. The first makes a virtual environment of wheels alone (no compiler is in either stage); the
# last is the base and two layers: that environment (docs/releasing.md has its size, package by package) and nothing
# else, so a new version of ours moves one layer. No pip in it, no shell script runs at the start, nothing is written but
# /tmp: run it with a read-only root. A test runs the steps of both stages into a folder: tests/shipping/test_image.py.
# The digest is what counts; the tag is for people. `docker buildx imagetools inspect` shows that of another one.
ARG BASE=docker.io/library/python:3.12.12-slim-bookworm@sha256:593bd06efe90efa80dc4eee3948be7c0fde4134606dd40d8dd8dbcade98e669c

FROM ${BASE} AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE CHANGELOG.md ./
COPY backoff_ctrl backoff_ctrl
COPY k8s k8s
COPY api api
COPY tools/image_tree.sh tools/
COPY tools/pins tools/pins
RUN sh tools/image_tree.sh /opt/backoff-ctrl

FROM ${BASE}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="backoff-ctrl" \
      org.opencontainers.image.description="Creates wait for quota instead of failing: sidecar, gateway, injection, page" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="docker.io/library/python:3.12.12-slim-bookworm" \
      org.opencontainers.image.base.digest="sha256:593bd06efe90efa80dc4eee3948be7c0fde4134606dd40d8dd8dbcade98e669c"
COPY --from=build /opt/backoff-ctrl /opt/backoff-ctrl
ENV PATH=/opt/backoff-ctrl/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
ENTRYPOINT ["backoff-ctrl"]
CMD ["--help"]
