set -eu
PATH=/usr/sbin:/usr/bin:/sbin:/bin
umask 022
trap 'exit 125' EXIT

# Set `place` to where the path $1 of the box is on the host. No link of the image leads out of it.
find_place() {
    place=$(realpath -m -- "$root$1")
    case $place in "$root" | "$root"/*) return ;; esac
    place=$(realpath -m -- "$root$place")
    case $place in "$root"/*) return ;; esac
    echo "box: the image has a link out of it at $1" >&2
    exit 125
}

# Mount the file or folder $1 at $2, with more options $3.
bind() {
    find_place "$2"
    if [ -d "$1" ]; then
        [ -d "$place" ] || mkdir -p "$place"
    else
        [ -d "${place%/*}" ] || mkdir -p "${place%/*}"
        [ -e "$place" ] || : >"$place"
    fi
    mount -o "bind$3" "$1" "$place"
}

# Mount a file system of type $1 with options $2 at $3.
make() {
    find_place "$3"
    [ -d "$place" ] || mkdir -p "$place"
    mount -t "$1" -o "$2" "$1" "$place"
}
mount -t tmpfs -o mode=700 tmpfs /cache/boxes/x/mounts
cd /cache/boxes/x/mounts
root=$(pwd -P)/root
mkdir root
python3 -ISc 'import os, socket, sys; socket.sethostname('"'"'box'"'"'); [os.symlink(path, str(number)) for number, path in enumerate(sys.argv[1:])]' /cache/unpacked/system /cache/unpacked/base
mkdir -p /cache/boxes/x/upper /cache/boxes/x/upper.work
ln -s /cache/boxes/x/upper upper
ln -s /cache/boxes/x/upper.work work
read -r _ _ ids </proc/self/uid_map
user=
[ "$ids" = 4294967295 ] || user=,userxattr
mount -t overlay -o nodev,redirect_dir=nofollow,metacopy=off,index=off,upperdir=upper,workdir=work$user,lowerdir=0:1 overlay root
make proc nosuid,nodev,noexec /proc
for name in bus fs irq sys sysrq-trigger; do
    [ ! -e "$root/proc/$name" ] || bind "$root/proc/$name" "/proc/$name" ,ro
done
# A user namespace that has the host's network may not mount a sysfs: it gets the host's.
make sysfs ro,nosuid,nodev,noexec /sys 2>/dev/null || mount -o rbind,ro /sys "$place" || echo 'box: it has no /sys' >&2
make tmpfs nosuid,nodev,noexec,mode=755 /dev
make devpts nosuid,noexec,newinstance,ptmxmode=0666,mode=0620 /dev/pts
make tmpfs nosuid,nodev,mode=1777,size=1073741824 /dev/shm
bind /dev/null /dev/null ''
bind /dev/zero /dev/zero ''
bind /dev/full /dev/full ''
bind /dev/random /dev/random ''
bind /dev/urandom /dev/urandom ''
bind /dev/tty /dev/tty ''
bind /dev/davinci0 /dev/davinci0 ''
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
ln -s fd/0 "$root/dev/stdin"
ln -s fd/1 "$root/dev/stdout"
ln -s fd/2 "$root/dev/stderr"
echo '127.0.0.1 localhost box' >hosts
echo '::1 localhost' >>hosts
cat /etc/hosts >>hosts
[ ! -e /etc/resolv.conf ] || bind /etc/resolv.conf /etc/resolv.conf ,ro
bind hosts /etc/hosts ''
make tmpfs nosuid,nodev /run
bind '/out/it'"'"'s here' /run/cannery/x ,nodev,ro
bind /out /out ,nodev
find_place /workspace
mkdir -p "$place"
setpriv=$(command -v setpriv)
unshare=$(command -v unshare)
cd "$root"
mount --no-mtab --move . /
trap - EXIT
set +e
"$setpriv" --no-new-privs --inh-caps=-all --bounding-set=-all,+chown,+dac_override,+fowner,+fsetid,+kill,+setgid,+setuid,+setpcap,+net_bind_service,+net_raw,+sys_chroot,+mknod,+audit_write,+setfcap -- \
    "$unshare" --root . --wd /workspace --setgid 0 --setuid 1000 -- \
    /usr/bin/env -i PATH=/opt/venv/bin:/bin HOME=/root 'WORDS=a '"'"'b'"'"' $c' "$@"
exit $?
