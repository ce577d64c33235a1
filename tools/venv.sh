#!/bin/sh
# Make a virtual environment with pip in it: tools/venv.sh PYTHON DIRECTORY
#
# A virtual environment that works is left as it is. A virtual environment gets pip from the module `ensurepip`, which
# Debian has in a separate package. As root this script installs that package, otherwise it prints its name.
set -eu

python=$1
directory=$2

print_error() {
    echo "venv.sh: $*" >&2
}

if "$directory/bin/python" -m pip --version >/dev/null 2>&1; then
    exit 0
fi

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    print_error "Windlass needs Python 3.11 or newer; choose one with: make PYTHON=python3.11 …"
    exit 1
fi

if ! "$python" -c 'import ensurepip' 2>/dev/null; then
    package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
        print_error "$python lacks the module ensurepip. Install it (on Debian: sudo apt-get install $package), then try again."
        exit 1
    fi
    print_error "$python lacks the module ensurepip; installing the package $package"
    apt-get update
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$package"
fi

"$python" -m venv --clear "$directory"
