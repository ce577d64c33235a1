#!/bin/bash
# Tries the files of deploy/ where they can run without a cluster and a container daemon: as root, on Debian, with package indexes.
#   bash tools/try_deploy.sh [schemas] [images] [units]     all of them without arguments
# Everything is made in a temporary folder, which is removed at the end.
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
folder=$(mktemp -d /var/tmp/windlass-deploy.XXXXXX)
init=  # the process id of the units' systemd
trap '[ -z "$init" ] || kill -KILL "$init"; rm -rf --one-file-system "$folder"' EXIT

say() { printf '\n== %s\n' "$*"; }
need() { for name; do command -v "$name" > /dev/null || { apt-get update -qq; apt-get install -y -qq "$name" > /dev/null; }; done; }

schemas() {
    say 'manifests, strictly by the schemas of Kubernetes, compose and KEDA'
    python3 -m venv "$folder/schemas"
    "$folder/schemas/bin/pip" install -q kubernetes-validate check-jsonschema
    "$folder/schemas/bin/kubernetes-validate" --strict --no-warn "$here"/deploy/kubernetes/*.yaml
    "$folder/schemas/bin/check-jsonschema" --builtin-schema vendor.compose-spec "$here/deploy/compose.yaml"
    need node npm
    cd "$folder" && npm install --silent --no-fund --no-audit @kubernetes-models/keda@2.0.0 js-yaml
    cat > keda.mjs <<'END'
import { readFileSync } from 'node:fs'
import * as yaml from 'js-yaml'
import * as keda from '@kubernetes-models/keda/keda.sh/v1alpha1'
const given = yaml.loadAll(readFileSync(process.argv[2], 'utf8')).filter((each) => each.apiVersion === 'keda.sh/v1alpha1')
for (const each of given) {
  new keda[each.kind](each).validate()
  console.log(each.kind, 'is valid')
}
if (given.length !== 2) throw new Error(`2 objects of KEDA, and not ${given.length}`)
END
    node --no-warnings keda.mjs "$here/deploy/kubernetes/windlass.yaml"
    systemd-analyze verify --man=no --recursive-errors=no "$here"/deploy/systemd/*.service 2>&1 \
        | grep -v 'windlass is not executable' && return 1 || true  # there is no program in /srv/shop here
}

root() {  # a clean root in $1, with the packages that follow
    need debootstrap
    local place=$1; shift
    debootstrap --variant=minbase --include="$(IFS=,; echo "python3 python3-pip python3-venv ca-certificates $*" | tr ' ' ,)" \
        bookworm "$place" > "$folder/debootstrap.log"
    cp /etc/ssl/certs/ca-certificates.crt "$place/etc/ssl/certs/"
}

images() {
    say 'images, from a clean Debian in the place of python:3.12-slim'
    need buildah
    export BUILDAH_ISOLATION=chroot CONTAINERS_STORAGE_CONF="$folder/storage.conf"
    printf '[storage]\ndriver = "vfs"\nrunroot = "%s/run"\ngraphroot = "%s/images"\n' "$folder" "$folder" > "$folder/storage.conf"
    root "$folder/base"
    base=$(buildah from scratch)
    buildah add -q "$base" "$folder/base" /
    buildah run "$base" -- ln -sf python3 /usr/bin/python
    buildah config --env PIP_BREAK_SYSTEM_PACKAGES=1 --env PIP_CERT=/etc/ssl/certs/ca-certificates.crt "$base"
    buildah commit -q "$base" docker.io/library/python:3.12-slim
    for name in worker api; do
        buildah bud --format docker --pull-never -q -f "$here/deploy/Dockerfile.$name" \
            --build-context windlass="$here" -t "shop-$name" "$here/deploy/example"
    done
    worker=$(buildah from --pull-never shop-worker) api=$(buildah from --pull-never shop-api)
    local url=sqlite:////tmp/shop.db
    # As the image's user, with the image's own command.
    buildah run --env WINDLASS_URL=$url "$worker" -- windlass migrate app.worker
    buildah run --env WINDLASS_URL=$url "$worker" -- sh -c '
        [ "$(id -un)" = app ] && windlass enqueue app.worker:welcome ann@example.org
        windlass worker app.worker -l INFO & pid=$!
        until python -c "import urllib.request as r; r.urlopen(\"http://127.0.0.1:9464/readyz\", timeout=2)" 2> /dev/null; do sleep 0.5; done
        until windlass status --json | grep -q "\"succeeded\": *1"; do sleep 0.5; done
        kill -TERM $pid; wait $pid'
    buildah run "$api" -- python -c 'import app.api; print("the API imports as", __import__("getpass").getuser())'
}

units() {
    say 'units, under a systemd of their own with a PostgreSQL'
    local port=55432 shop="$folder/system/srv/shop"
    root "$folder/system" systemd systemd-sysv dbus postgresql
    echo "port = $port" >> "$folder"/system/etc/postgresql/*/main/postgresql.conf
    mkdir -p "$shop" "$folder/system/opt/windlass"
    cp -r "$here"/{src,pyproject.toml,README.md,LICENSE,deploy} "$folder/system/opt/windlass/"
    cp -r "$here/deploy/example/app" "$shop/"
    printf '\n\n@app.job\nasync def block(seconds: float) -> None:\n    __import__("time").sleep(seconds)\n' >> "$shop/app/worker.py"
    cat > "$folder/boot.sh" <<'END'
mount --make-rprivate /
mount --bind "$1" "$1"
mount -t proc proc "$1/proc"
mount --rbind /sys "$1/sys"
mount -t cgroup2 cgroup2 "$1/sys/fs/cgroup"
mount --rbind /dev "$1/dev"
mount -t tmpfs tmpfs "$1/run"
cd "$1"
exec chroot . env -i container=lxc PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --log-target=console
END
    unshare --mount --pid --fork --uts --ipc --cgroup bash "$folder/boot.sh" "$folder/system" > "$folder/boot.log" 2>&1 &
    until init=$(pgrep -P $!) && inside systemctl is-active -q multi-user.target; do sleep 1; done
    inside bash -euo pipefail -s $port < "$here/tools/try_units.sh"
}

inside() { nsenter -t "$init" -m -p -u -i -C -r -w env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin PIP_CERT=/etc/ssl/certs/ca-certificates.crt "$@"; }

for part in "${@:-schemas images units}"; do for each in $part; do "$each"; done; done
say 'all of deploy/ that can run here holds'
