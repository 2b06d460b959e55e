#!/bin/sh
# Builds the packages of a release into target/dist, on Debian: an archive, a Debian package, a container image and a bill of
# materials for each target, by default this machine's with a static glibc. For Windows, there are only an archive and a bill:
#
#   packaging/build.sh [x86_64-unknown-linux-musl | aarch64-unknown-linux-gnu | x86_64-pc-windows-gnu | …]…
#
# Two builds of one commit are equal. Another architecture needs its linker in CARGO_TARGET_<TRIPLE>_LINKER. If the toolchain has no
# standard library for a target, it is built from its sources (the component rust-src).
set -eu
umask 022
cd "$(dirname "$0")/.."

need() {
    command -v "$1" >/dev/null || { echo "$1 is missing. Install it with: $2" >&2; exit 1; }
}
case " ${*:-linux} " in
*-windows-*) need zip "apt-get install zip" && need x86_64-w64-mingw32-gcc "apt-get install gcc-mingw-w64-x86-64" ;;
esac
case " ${*:-linux} " in
*linux*) need dpkg-deb "apt-get install dpkg" && need buildah "apt-get install buildah" ;;
esac
need cargo-cyclonedx "cargo install --locked cargo-cyclonedx"
[ -e /etc/ssl/certs/ca-certificates.crt ] || { echo "ca-certificates is missing: apt-get install ca-certificates" >&2; exit 1; }

[ $# -gt 0 ] || set -- "$(uname -m)-unknown-linux-gnu"
root=$(pwd)
target=${CARGO_TARGET_DIR:-$root/target}
cargo_home=${CARGO_HOME:-$HOME/.cargo}
dist=$target/dist
version=$(cargo pkgid --package ifmatch-gateway | sed 's/.*[#@]//')
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH

# The libraries in the binary, with the texts of their licences.
licences() {
    cargo tree --locked --package ifmatch-gateway --features full --target "$1" --edges normal,no-proc-macro --prefix none --format '{p} {l}' |
        grep -v "($root" | sed 's/ (\*)$//' | sort -u | while read -r name number licence; do
        printf '\n%s %s: %s\n' "$name" "$number" "$licence"
        find "$cargo_home"/registry/src/*/"$name-${number#v}" -maxdepth 1 -type f \
            \( -iname 'licen[cs]e*' -o -iname 'copying*' -o -iname 'notice*' -o -iname 'unlicense*' \) -print0 |
            sort -z | xargs -0 --no-run-if-empty cat
    done
    echo
    case $1 in
    *-windows-*)
        echo "The standard library of Rust (MIT OR Apache-2.0), the runtime of MinGW-w64 (ZPL-2.1 and public domain), and libgcc"
        echo "(GPL-3.0-or-later WITH GCC-exception-3.1)."
        ;;
    *)
        echo "The standard library of Rust (MIT OR Apache-2.0), and the C library: musl (MIT), or the GNU C library"
        echo "(LGPL-2.1-or-later), which you may replace by building ifmatch from its sources."
        ;;
    esac
}

# Manual pages and completions. The first target's binary must run on this machine.
manuals() {
    mkdir -p "$files/man/man1" "$files/completions"
    native=${native:-$binary}
    "$native" man "$files/man/man1"
    "$native" completions bash >"$files/completions/ifmatch.bash"
    "$native" completions zsh >"$files/completions/_ifmatch"
    "$native" completions fish >"$files/completions/ifmatch.fish"
}

# The files of the Debian package, below a folder.
debian_files() {
    install -D "$binary" "$1/usr/bin/ifmatch"
    install -D -m 644 packaging/ifmatch.toml "$1/etc/ifmatch/ifmatch.toml"
    install -D -m 644 -t "$1/lib/systemd/system" packaging/systemd/ifmatch.service packaging/systemd/ifmatch.socket
    install -D -m 644 -t "$1/usr/share/man/man1" "$files"/man/man1/*
    install -D -m 644 "$files/completions/ifmatch.bash" "$1/usr/share/bash-completion/completions/ifmatch"
    install -D -m 644 "$files/completions/_ifmatch" "$1/usr/share/zsh/vendor-completions/_ifmatch"
    install -D -m 644 "$files/completions/ifmatch.fish" "$1/usr/share/fish/vendor_completions.d/ifmatch.fish"
    install -D -m 644 packaging/debian/lintian-overrides "$1/usr/share/lintian/overrides/ifmatch"
    install -D -m 644 -t "$1/usr/share/doc/ifmatch" packaging/debian/copyright CHANGELOG.md README.md "$files/THIRD-PARTY.txt"
    maintainer=$(sed -n 's/^Maintainer: //p' packaging/debian/control)
    printf 'ifmatch (%s) stable; urgency=medium\n\n  * CHANGELOG.md.gz in this folder has the changes.\n\n -- %s  %s\n' \
        "$debian_version" "$maintainer" "$(date --utc --rfc-email --date "@$SOURCE_DATE_EPOCH")" \
        >"$1/usr/share/doc/ifmatch/changelog"
    gzip --best --no-name "$1"/usr/share/man/man1/* "$1"/usr/share/doc/ifmatch/[A-Z]* "$1/usr/share/doc/ifmatch/changelog"
}

package() {
    # A pre-release is earlier than its release.
    debian_version=$(echo "$version" | tr - '~')
    tree=$work/debian
    debian_files "$tree"
    install -D -m 755 -t "$tree/DEBIAN" packaging/debian/postinst packaging/debian/postrm packaging/debian/prerm
    echo /etc/ifmatch/ifmatch.toml >"$tree/DEBIAN/conffiles"
    (cd "$tree" && find usr lib -type f -print0 | sort -z | xargs -0 md5sum) >"$tree/DEBIAN/md5sums"
    {
        printf 'Package: ifmatch\nVersion: %s\nArchitecture: %s\n' "$debian_version" "$architecture"
        printf 'Installed-Size: %s\n' "$(du --apparent-size --block-size 1K --summarize "$tree" | cut -f 1)"
        cat packaging/debian/control
    } >"$tree/DEBIAN/control"
    dpkg-deb --root-owner-group -Zgzip --build "$tree" "$dist/ifmatch_${debian_version}_$architecture.deb"
}

# The files below a folder, whose times are those of the commit.
archive() {
    case $triple in
    *-windows-*)
        (cd "$work" && find "$name" | LC_ALL=C sort | TZ=UTC zip -q -9 -X "$dist/$name.zip" -@)
        ;;
    *)
        tar --create --sort=name --owner=0 --group=0 --numeric-owner --mtime "@$SOURCE_DATE_EPOCH" --directory "$work" "$name" |
            gzip --best --no-name >"$dist/$name.tar.gz"
        ;;
    esac
}

# One layer: the binary, and the certificates that it trusts.
image() {
    tree=$work/image
    install -D "$binary" "$tree/usr/bin/ifmatch"
    install -D -m 644 /etc/ssl/certs/ca-certificates.crt "$tree/etc/ssl/certs/ca-certificates.crt"
    install -D -m 644 -t "$tree/usr/share/doc/ifmatch" LICENSE-APACHE LICENSE-MIT "$files/THIRD-PARTY.txt"
    echo 'ifmatch:x:65532:65532:ifmatch:/data:/sbin/nologin' >"$tree/etc/passwd"
    echo 'ifmatch:x:65532:' >"$tree/etc/group"
    install -d -m 700 "$work/data"
    container=$(buildah from --arch "$architecture" scratch)
    buildah copy --quiet "$container" "$tree" /
    buildah copy --quiet --chown 65532:65532 --chmod 700 "$container" "$work/data" /data
    # Other addresses than the loopback need a token or an account, which the gateway asks for.
    buildah config --arch "$architecture" --os linux --user 65532:65532 --port 10000/tcp --volume /data --workingdir / \
        --env PATH=/usr/bin --env IFMATCH_LISTEN=0.0.0.0:10000 --stop-signal SIGTERM \
        --entrypoint '["/usr/bin/ifmatch"]' --cmd '["serve", "--data", "/data"]' \
        --healthcheck 'CMD /usr/bin/ifmatch health' --healthcheck-interval 30s --healthcheck-timeout 10s \
        --healthcheck-start-period 10s \
        --label org.opencontainers.image.title=ifmatch --label "org.opencontainers.image.version=$version" \
        --label 'org.opencontainers.image.licenses=MIT OR Apache-2.0' \
        --label org.opencontainers.image.source=https://github.com/ifmatch/ifmatch "$container"
    # Docker's format, since OCI's has no health checks.
    buildah commit --quiet --rm --format docker --timestamp "$SOURCE_DATE_EPOCH" "$container" "ifmatch:$version-$architecture"
    buildah push --quiet "ifmatch:$version-$architecture" \
        "docker-archive:$dist/ifmatch-$version-$architecture.image.tar:ifmatch:$version"
    buildah rmi --force "ifmatch:$version-$architecture" >/dev/null
    gzip --best --no-name "$dist/ifmatch-$version-$architecture.image.tar"
}

build() {
    triple=$1
    case $triple in
    x86_64-*) architecture=amd64 ;;
    aarch64-*) architecture=arm64 ;;
    *) echo "unknown architecture: $triple" >&2; exit 1 ;;
    esac
    case $triple in *-windows-*) extension=.exe ;; *) extension= ;; esac
    own_std=
    [ -d "$(rustc --print sysroot)/lib/rustlib/$triple" ] || own_std="RUSTC_BOOTSTRAP=1 CARGO_UNSTABLE_BUILD_STD=std,panic_unwind"
    echo "== $triple"
    name=ifmatch-$version-$triple
    work=$(mktemp -d)
    # The binary contains neither a path of this machine nor the time of its build.
    CARGO_ENCODED_RUSTFLAGS=$(printf '%s\037' -Ctarget-feature=+crt-static "--remap-path-prefix=$root=/ifmatch" \
        "--remap-path-prefix=$target=/target" "--remap-path-prefix=$cargo_home=/cargo" | sed 's/\x1f$//')
    export CARGO_ENCODED_RUSTFLAGS
    # shellcheck disable=SC2086
    env $own_std "CFLAGS_$(echo "$triple" | tr - _)=-Wno-builtin-macro-redefined -D__DATE__=\"\" -D__TIME__=\"\"" \
        cargo build --locked --profile portable --target "$triple" --package ifmatch-gateway --bin ifmatch --features full
    binary=$target/$triple/portable/ifmatch$extension
    if grep --quiet --fixed-strings -e "$root/" -e "$cargo_home/" "$binary"; then
        echo "$binary contains a path of this machine" >&2
        exit 1
    fi
    files=$work/$name
    mkdir -p "$files"
    cp "$binary" LICENSE-APACHE LICENSE-MIT README.md CHANGELOG.md "$files"
    licences "$triple" >"$files/THIRD-PARTY.txt"
    [ -n "$extension" ] || manuals
    find "$work" -exec touch --no-dereference --date "@$SOURCE_DATE_EPOCH" {} +
    archive
    if [ -z "$extension" ]; then
        package
        image
    fi
    cargo cyclonedx --quiet --manifest-path crates/ifmatch-gateway/Cargo.toml --features full --format json --target "$triple" \
        --no-build-deps --override-filename "$name.cdx"
    mv "crates/ifmatch-gateway/$name.cdx.json" "$dist/$name.cdx.json"
    find crates wasm xtask examples -name "$name.cdx.json" -delete
    rm -rf "$work"
}

rm -rf "$dist"
mkdir -p "$dist"
for triple in "$@"; do build "$triple"; done
# `cargo xtask dist` names the WebAssembly component that it has built.
[ -z "${IFMATCH_COMPONENT:-}" ] || cp "$IFMATCH_COMPONENT" "$dist/ifmatch.wasm"
(cd "$dist" && sha256sum -- * >SHA256SUMS && ls -l)
