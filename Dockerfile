# The image of backoff-ctrl: `docker buildx build --platform linux/amd64,linux/arm64 -t NAME:VERSION .`
#
# Two stages from one base. The first makes a virtual environment of wheels alone (no compiler is in either stage); the
# last is the base and two layers: that environment (docs/releasing.md has its size, package by package) and nothing
# else, so a new version of ours moves one layer. No pip in it, no shell script runs at the start, nothing is written but
# /tmp: run it with a read-only root. A test runs the steps of both stages into a folder: tests/shipping/test_image.py.
ARG BASE=docker.io/library/python:3.12.12-slim-bookworm

FROM ${BASE} AS build
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE CHANGELOG.md ./
COPY backoff_ctrl backoff_ctrl
COPY k8s k8s
COPY api api
COPY tools/image_tree.sh tools/
RUN sh tools/image_tree.sh /opt/backoff-ctrl

FROM ${BASE}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="backoff-ctrl" \
      org.opencontainers.image.description="Creates wait for quota instead of failing: sidecar, gateway, injection, page" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="docker.io/library/python:3.12.12-slim-bookworm"
COPY --from=build /opt/backoff-ctrl /opt/backoff-ctrl
ENV PATH=/opt/backoff-ctrl/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
ENTRYPOINT ["backoff-ctrl"]
CMD ["--help"]
