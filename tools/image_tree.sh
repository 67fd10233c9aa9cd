#!/bin/sh
# Makes what the image contains: a virtual environment with backoff-ctrl and what its servers and its tasks need.
# Usage, in the project's folder: sh tools/image_tree.sh FOLDER. PYTHON chooses the interpreter.
# pip's own variables count: PIP_NO_INDEX and PIP_FIND_LINKS let it work from a folder of wheels.
set -eu
target=$1
python=${PYTHON:-python3}
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
unset PYTHONPYCACHEPREFIX  # the bytecode belongs into the tree
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PYTHONDONTWRITEBYTECODE=1
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-315532800}"

# Wheels only: whatever would have to be compiled, or would run code of its own to be built, is an error. Each has one of
# the hashes in tools/pins, whatever an index, or a proxy before it, gives under its name.
"$python" -m venv "$made/builder"
"$made/builder/bin/pip" install --quiet --only-binary=:all: --require-hashes -r tools/pins/build.txt
"$made/builder/bin/pip" wheel --quiet --no-deps --no-build-isolation --wheel-dir "$made" .
"$python" -m venv "$target"
wheel=$(ls "$made"/backoff_ctrl-*.whl)
"$target/bin/pip" install --quiet --no-compile --only-binary=:all: --require-hashes -r tools/pins/image.txt
"$target/bin/pip" install --quiet --no-compile --no-deps "$wheel[connector,proxy,serve,tasks]"
"$target/bin/pip" check >&2

# Bytecode that is trusted without a look at dates: the tree is read-only, and starts 0.3 s sooner with it.
"$target/bin/python" -m compileall -q -j 0 --invalidation-mode unchecked-hash "$target/lib"
"$target/bin/pip" uninstall --quiet --yes pip setuptools 2>/dev/null || "$target/bin/pip" uninstall --quiet --yes pip
find "$target" -name 'tests' -type d -path '*/site-packages/*' -prune -exec rm -rf {} +
rm -f "$target"/bin/Activate.ps1 "$target"/bin/activate*
