#!/bin/sh
# Install system packages into the image and leave nothing else: no cache, no log, no list, no mirror, no CA.
#
#   system.sh apt|dnf EPOCH [PACKAGE...]
#
# /run/cannery/etc is copied over /etc; /run/secrets/apt_sources (one-line form) replaces the image's own sources for this
# step; /run/secrets/ca is the bundle for https mirrors. Everything changed here gets mtime EPOCH, so that the layer's
# digest depends on the packages alone.
set -eu

family=$1
epoch=$2
shift 2

start=$(date +%s)
scratch=$(mktemp -d -p /run)
cp -a /var/log "$scratch/log"

install_apt() {
    export DEBIAN_FRONTEND=noninteractive
    # Lists and archives go beside: what is removed from a lower layer leaves a whiteout with today's date.
    mkdir -p "$scratch/lists/partial" "$scratch/cache/archives/partial" "$scratch/sources"
    set -- -o APT::Install-Recommends=false -o Dpkg::Use-Pty=0 -o Acquire::Retries=3 -o APT::Sandbox::User=root \
        -o Dir::State::lists="$scratch/lists" -o Dir::Cache="$scratch/cache" "$@"
    if [ -s /run/secrets/apt_sources ]; then
        cp /run/secrets/apt_sources "$scratch/sources/host.list"
        set -- -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$scratch/sources" "$@"
    fi
    if [ -s /run/secrets/ca ]; then
        set -- -o Acquire::https::CAInfo=/run/secrets/ca "$@"
    fi
    options=
    while [ "$1" != -- ]; do
        options="$options $1"
        shift
    done
    shift
    # shellcheck disable=SC2086 # options hold no spaces of their own
    apt-get $options -qq update
    # shellcheck disable=SC2086
    apt-get $options -qq install -y "$@"
}

install_dnf() {
    manager=dnf
    command -v dnf >/dev/null || manager=yum
    shift # the separator
    if [ -s /run/secrets/ca ]; then
        "$manager" -y --setopt=install_weak_deps=False --setopt=sslcacert=/run/secrets/ca install "$@"
    else
        "$manager" -y --setopt=install_weak_deps=False install "$@"
    fi
    "$manager" clean all
}

if [ $# -gt 0 ]; then
    "install_$family" -- "$@"
fi

cp -r /run/cannery/etc/. /etc/
chmod 644 /etc/profile.d/cannery.sh

# Logs are put back as they were.
find /var/log -type f | while read -r log; do
    if [ -e "$scratch/log/${log#/var/log/}" ]; then cp -p "$scratch/log/${log#/var/log/}" "$log"; else rm "$log"; fi
done
rm -f /var/cache/ldconfig/aux-cache /var/cache/apt/*.bin
rm -rf /var/cache/dnf/* /var/cache/yum/*

# Mounts of the step itself are left out; the rest of what changed gets the fixed mtime.
find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /etc/hosts -o -path /etc/hostname \
    -o -path /etc/resolv.conf \) -prune -o -newermt "@$((start - 1))" -exec touch -h -d "@$epoch" {} +
