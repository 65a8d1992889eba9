#!/bin/sh
# Install system packages into the image and leave nothing else: no cache, no log, no list, no mirror, no CA.
#
#   system.sh [--user NAME:UID:GID] [--venv PYTHON:DIR] [--writable DIR]... apt|dnf EPOCH [PACKAGE...]
#
# With --user that user is there afterwards, with a group of its name and a home; the other two options go with it: an
# environment on top of /opt/venv that is the user's, and folders that everybody may write. A base that has the name or
# one of the numbers for another user ends the step.
#
# /run/cannery/etc is copied over /etc. Of /run/secrets, apt_sources (one-line form) replaces the image's own sources for
# this step, system_mirrors is a script for sed that puts mirrors into them, ca is the bundle for https mirrors, and
# proxies sets variables of the shell. Everything changed here gets mtime EPOCH, so that the layer's digest depends on the
# packages alone.
set -eu

user='' venv='' writable=''
while [ "${1#--}" != "$1" ]; do
    case $1 in
    --user) user=$2 ;;
    --venv) venv=$2 ;;
    --writable) writable="$writable $2" ;;
    *) echo "system.sh: unknown option $1" >&2 && exit 2 ;;
    esac
    shift 2
done
family=$1
epoch=$2
shift 2

if [ -s /run/secrets/proxies ]; then
    # shellcheck disable=SC1091 # there in a build alone
    . /run/secrets/proxies
fi
start=$(date +%s)
scratch=$(mktemp -d -p /run)
cp -a /var/log "$scratch/log"

# Copy the base's sources $1 into the folder $2, with mirrors in the place of what they are of. A list of mirrors of the
# distribution's own would be asked first: of a file that has a mirror now it goes.
with_mirrors() {
    mkdir -p "$2"
    for file in $1; do
        [ -f "$file" ] || continue
        sed -f /run/secrets/system_mirrors "$file" >"$2/${file##*/}"
        if ! cmp -s "$file" "$2/${file##*/}"; then sed -i '/^\(metalink\|mirrorlist\)=/d' "$2/${file##*/}"; fi
    done
}

install_apt() {
    export DEBIAN_FRONTEND=noninteractive
    # Lists and archives go beside: what is removed from a lower layer leaves a whiteout with today's date.
    mkdir -p "$scratch/lists/partial" "$scratch/cache/archives/partial" "$scratch/sources"
    set -- -o APT::Install-Recommends=false -o Dpkg::Use-Pty=0 -o Acquire::Retries=3 -o APT::Sandbox::User=root \
        -o Dir::State::lists="$scratch/lists" -o Dir::Cache="$scratch/cache" "$@"
    if [ -s /run/secrets/apt_sources ]; then
        cp /run/secrets/apt_sources "$scratch/sources/host.list"
    elif [ -s /run/secrets/system_mirrors ]; then
        with_mirrors '/etc/apt/sources.list /etc/apt/sources.list.d/*' "$scratch/sources"
    fi
    if [ -n "$(ls -A "$scratch/sources")" ]; then
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
    if [ -s /run/secrets/system_mirrors ]; then
        with_mirrors '/etc/yum.repos.d/*.repo' "$scratch/repos"
        set -- --setopt=reposdir="$scratch/repos" install "$@"
    else
        set -- install "$@"
    fi
    if [ -s /run/secrets/ca ]; then
        set -- --setopt=sslcacert=/run/secrets/ca "$@"
    fi
    "$manager" -y --setopt=install_weak_deps=False "$@"
    "$manager" clean all
}

fail() {
    echo "system.sh: $1" >&2
    echo "Give the profile's user the numbers that the base has for it, or another name: user: {name: …, uid: …, gid: …}" >&2
    exit 1
}

# Print the line of /etc/$1 that has the name $2 or the number $3. Another user's or group's line ends the step.
account() {
    found=$(grep -e "^$2:" -e "^[^:]*:[^:]*:$3:" "/etc/$1") || return 0
    other=$(echo "$found" | grep -v "^$2:[^:]*:$3:" | head -n 1) || true
    [ -z "$other" ] || fail "the base's /etc/$1 has $other, the profile says $2 with number $3"
    echo "$found" | head -n 1
}

# useradd writes the day into /etc/shadow, and some bases have no useradd.
make_user() {
    name=$1 uid=$2 gid=$3 home=/home/$1
    line=$(account group "$name" "$gid")
    if [ -z "$line" ]; then
        echo "$name:x:$gid:" >>/etc/group
        if [ -f /etc/gshadow ]; then echo "$name:!::" >>/etc/gshadow; fi
    fi
    line=$(account passwd "$name" "$uid")
    case $line in
    '')
        echo "$name:x:$uid:$gid::$home:/bin/bash" >>/etc/passwd
        if [ -f /etc/shadow ]; then echo "$name:*:::::::" >>/etc/shadow; fi
        ;;
    "$name:"*":$uid:$gid:"*":$home:"*) ;;
    *) fail "the base's /etc/passwd has $line, the profile says main group $gid and home $home" ;;
    esac
    # Group 0 is what OpenShift's arbitrary users are in.
    mkdir -p "$home"
    chown "$uid:0" "$home"
    chmod 775 "$home"
}

make_venv() {
    python=$1 folder=$2 owner=$3
    "$python" -B -m venv --without-pip "$folder"
    for site in "$folder"/lib/python3*/site-packages; do
        echo "/opt/venv/lib/$(basename "$(dirname "$site")")/site-packages" >"$site/cannery.pth"
    done
    find "$folder" -type d -exec chown "$owner:0" {} + -exec chmod 775 {} +
}

if [ $# -gt 0 ]; then
    "install_$family" -- "$@"
fi

cp -r /run/cannery/etc/. /etc/
chmod 644 /etc/profile.d/cannery.sh

if [ -n "$user" ]; then
    ids=${user#*:}
    make_user "${user%%:*}" "${ids%%:*}" "${ids#*:}"
    make_venv "${venv%%:*}" "${venv#*:}" "${ids%%:*}"
    for folder in $writable; do
        mkdir -p "$folder"
        chmod 1777 "$folder"
    done
fi

# Logs are put back as they were.
find /var/log -type f | while read -r log; do
    if [ -e "$scratch/log/${log#/var/log/}" ]; then cp -p "$scratch/log/${log#/var/log/}" "$log"; else rm "$log"; fi
done
rm -f /var/cache/ldconfig/aux-cache /var/cache/apt/*.bin
rm -rf /var/cache/dnf/* /var/cache/yum/*

# Mounts of the step itself are left out; the rest of what changed gets the fixed mtime.
find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /etc/hosts -o -path /etc/hostname \
    -o -path /etc/resolv.conf \) -prune -o -newermt "@$((start - 1))" -exec touch -h -d "@$epoch" {} +
