#!/bin/sh
# Checks the packages of target/dist as their users would meet them: lintian, a fresh Debian, an older one, and the image's
# files alone. Run it as root on Debian, after packaging/build.sh. Folders of other systems, such as Alpine, may be named: the
# binary must run there, too.
set -eu
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || { echo "the checks install packages in systems of their own: run them as root" >&2; exit 1; }
for tool in curl debootstrap jq lintian systemd-nspawn:systemd-container; do
    command -v "${tool%:*}" >/dev/null || { echo "${tool%:*} is missing. Install it with: apt-get install ${tool#*:}" >&2; exit 1; }
done

target=${CARGO_TARGET_DIR:-$(pwd)/target}
architecture=$(dpkg --print-architecture)
package=$(echo "$target"/dist/ifmatch_*_"$architecture".deb)
archive=$(echo "$target"/dist/ifmatch-*-"$(uname -m)"-*.tar.gz)
roots=$target/dist-roots
port=18000
gateway=
mkdir -p "$roots"
trap '[ -z "$gateway" ] || kill "$gateway"' EXIT

# A copy of a fresh Debian with more packages, separated by commas, in $system.
debian() {
    if [ ! -e "$roots/$1" ]; then
        rm -rf "$roots/$1.new"
        echo "== installing Debian $1; the output is in $roots/$1.log"
        debootstrap --variant=minbase "--include=$2" "$1" "$roots/$1.new" >"$roots/$1.log" 2>&1
        mv "$roots/$1.new" "$roots/$1"
    fi
    copy "$roots/$1"
}

copy() {
    system=$roots/run
    rm -rf "$system"
    cp --archive "$1/." "$system"
}

# Starts a gateway in $system as a user, and waits until it answers.
serve() {
    user=$1
    shift
    port=$((port + 1))
    IFMATCH_LISTEN=127.0.0.1:$port IFMATCH_LISTEN_TABLES=off chroot "--userspec=$user" "$system" "$@" >"$roots/gateway.log" 2>&1 &
    gateway=$!
    for _ in $(seq 300); do
        ! curl --silent --output /dev/null "http://127.0.0.1:$port/" || return 0
        kill -0 "$gateway" || break
        sleep 0.1
    done
    echo "the gateway has ended, or has not answered within 30 s:" >&2
    cat "$roots/gateway.log" >&2
    exit 1
}

stop() {
    kill "$gateway"
    wait "$gateway" || true
    gateway=
}

# Sends a request, and compares the status.
expect() {
    status=$1
    shift
    found=$(curl --silent --output /dev/null --write-out '%{http_code}' "$@")
    [ "$found" = "$status" ] || { echo "curl $*: $found, not $status" >&2; exit 1; }
}

echo "== $package"
lintian --allow-root --fail-on error "$package"
systemd-analyze security --offline=true --no-pager --threshold=16 packaging/systemd/ifmatch.service | tail -n 1

echo "== Debian 12: the package"
debian bookworm adduser,dbus,systemd,systemd-sysv
cp "$package" "$system/ifmatch.deb"
chroot "$system" dpkg --install /ifmatch.deb
chroot "$system" install -d -o ifmatch -g ifmatch -m 700 /var/lib/ifmatch
serve ifmatch: $(sed -n 's/^ExecStart=//p' "$system/lib/systemd/system/ifmatch.service")
url=http://127.0.0.1:$port/docs/hello.txt
expect 201 --upload-file README.md -H 'If-None-Match: *' "$url"
expect 412 --upload-file README.md -H 'If-None-Match: *' "$url"
tag=$(curl --silent --head "$url" | tr -d '\r' | sed -n 's/^etag: //p')
expect 304 -H "If-None-Match: $tag" "$url"
expect 206 --range 0-4 "$url"
expect 412 --request DELETE -H 'If-Match: "old"' "$url"
stop
chroot "$system" dpkg --remove ifmatch
# Each by itself: `set -e` ignores a failure before `&&`.
[ ! -e "$system/usr/bin/ifmatch" ]
[ -e "$system/etc/ifmatch/ifmatch.toml" ]
chroot "$system" dpkg --purge ifmatch
[ ! -e "$system/etc/ifmatch" ]
[ -d "$system/var/lib/ifmatch/bodies" ]

echo "== Debian 12: the service, started by systemd"
debian bookworm adduser,dbus,systemd,systemd-sysv
cp "$package" "$system/ifmatch.deb"
cat >"$system/check.sh" <<'CHECK'
dpkg --install /ifmatch.deb
ifmatch health --ready
before=$(systemctl show --property MainPID ifmatch)
systemctl reload ifmatch
ifmatch health --ready
test "$(systemctl show --property MainPID ifmatch)" = "$before"
systemctl restart ifmatch
systemctl --no-pager status ifmatch
dpkg --purge ifmatch
test -d /var/lib/ifmatch/bodies
echo passed
CHECK
cat >"$system/etc/systemd/system/check.service" <<'UNIT'
[Unit]
After=multi-user.target

[Service]
Type=oneshot
ExecStart=/bin/sh -ex /check.sh
ExecStopPost=/bin/systemctl poweroff
StandardOutput=append:/check.log
StandardError=append:/check.log

[Install]
WantedBy=multi-user.target
UNIT
chroot "$system" systemctl enable check.service
timeout 900 systemd-nspawn --quiet --register=no --keep-unit --private-network --boot "--directory=$system" >"$roots/boot.log" 2>&1
cat "$system/check.log"
[ "$(tail -n 1 "$system/check.log")" = passed ]

# The binary alone. It resolves a name, so that the C library does.
alone() {
    echo "== $1: the binary"
    tar --extract --gzip --file "$archive" --directory "$system" --strip-components 1 --wildcards '*/ifmatch'
    echo '127.0.0.1 localhost' >"$system/etc/hosts"
    serve nobody: /ifmatch serve --store memory://
    chroot "$system" /ifmatch health --ready --url "http://localhost:$port"
    stop
}
debian bullseye adduser
alone "Debian 11"
for other in "$@"; do
    copy "$other"
    alone "$other"
done

echo "== the image: its command as its user, with nothing but its files"
system=$roots/run
rm -rf "$system" "$roots/image"
mkdir -p "$system" "$roots/image"
tar --extract --gzip --file "$(echo "$target"/dist/ifmatch-*-"$architecture".image.tar.gz)" --directory "$roots/image"
config=$roots/image/$(jq --raw-output '.[0].Config' "$roots/image/manifest.json")
for layer in $(jq --raw-output '.[0].Layers[]' "$roots/image/manifest.json"); do
    tar --extract --same-owner --preserve-permissions --file "$roots/image/$layer" --directory "$system"
done
field() { jq --raw-output ".config.$1" "$config"; }
[ "$(field User)" = 65532:65532 ]
serve "$(field User)" $(field 'Entrypoint + .config.Cmd | join(" ")')
chroot "$system" $(field 'Healthcheck.Test[1:] | join(" ")' | sed 's/^CMD //') --ready --url "http://127.0.0.1:$port"
stop
size=$(stat --format=%s "$target"/dist/ifmatch-*-"$architecture".image.tar.gz)
echo "$size bytes compressed"
[ "$size" -le 13000000 ] || { echo "the image has more than 13 MB" >&2; exit 1; }
