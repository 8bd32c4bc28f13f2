#!/bin/sh
# trial.sh DEB TARBALL: installs both packages in an overlay of this machine's file system, looks at what they bring,
# and removes them; every file has to be as before. It runs in a mount namespace of its own.
set -eu

say() { echo "trial: $*"; }
fail() {
    echo "trial: FAILED: $*"
    exit 1
}

if [ "${1:-}" != --inside ]; then
    work=$(mktemp -d)
    trap 'umount -R -l "$work" && rmdir "$work"' EXIT
    mount -t tmpfs trial "$work"
    mkdir "$work/upper" "$work/work" "$work/root"
    mount -t overlay trial -o "lowerdir=/,upperdir=$work/upper,workdir=$work/work" "$work/root"
    for directory in proc sys dev; do
        mount --rbind "/$directory" "$work/root/$directory"
    done
    mount -t tmpfs trial "$work/root/run"
    mkdir -p "$work/root/trial/upper" "$work/root/trial/lower"
    mount --bind "$work/upper" "$work/root/trial/upper"
    mount --bind / "$work/root/trial/lower"
    cp "$1" "$work/root/trial/package.deb"
    cp "$2" "$work/root/trial/tarball.tar.zst"
    cp "$0" "$work/root/trial/trial.sh"
    chroot "$work/root" sh /trial/trial.sh --inside
    exit
fi

cd /trial
# Otherwise dpkg has the index of all pages made anew each time, which is most of the time that this takes.
rm -f /var/lib/man-db/auto-update
# What differs from the machine's own files, but for what dpkg, man-db and the loader keep of every package.
differences() {
    cd /trial/upper
    {
        find . ! -type d
        find . -type d | while read -r directory; do
            [ -d "/trial/lower/$directory" ] || echo "$directory/"
        done
    } | grep -vE '^\./(trial|var/lib/(dpkg|man-db)|var/log|var/cache/(man|ldconfig))/|^\./etc/ld\.so\.cache$' || true
    cd /trial
}
same() {
    ! differences | grep -vxFf before >left || fail "$1 leaves something: $(cat left)"
}

# Jobs of this machine may have left it, empty.
rmdir --ignore-fail-on-non-empty /var/lib/coswitch 2>/dev/null || true
differences >before

# What an installed coswitch has to do; $1 is the prefix.
look() {
    version=$("$1/bin/coswitch" --version)
    case $version in "coswitch "*) ;; *) fail "coswitch --version says $version" ;; esac
    # This copy of the machine may lack what jobs need (exit code 3); it has to find its own parts.
    "$1/bin/coswitch" doctor >doctor || [ $? = 3 ] || fail "coswitch doctor: $(cat doctor)"
    grep -q "^ok  *coswitch's parts: daemon, launcher and driver in $2\$" doctor || fail "doctor: $(cat doctor)"
    for page in coswitch coswitch-run coswitch-images-list coswitch.yaml coswitchd coswitch-launcher; do
        path=$(man -w "$page") || fail "no page $page"
        case $path in "$1/share/man/"*) ;; *) fail "page $page is in $path" ;; esac
        man --warnings -E UTF-8 -P cat "$page" >page 2>problems || fail "page $page: $(cat problems)"
        [ ! -s problems ] || fail "page $page: $(cat problems)"
        grep -q '^NAME' page || fail "page $page has no name: $(head -5 page)"
    done
    bash -c '. "$1" && COMP_WORDS=(coswitch ru) COMP_CWORD=1 && _coswitch coswitch ru coswitch &&
        [ "${COMPREPLY[*]}" = run ]' - "$1/share/bash-completion/completions/coswitch" ||
        fail "bash does not complete \`coswitch ru\`"
    "$1/bin/coswitch" serve --dry-run "$3" >served 2>&1 || [ $? = 3 ] || fail "$3 is not right: $(cat served)"
    for unit in coswitch.service coswitch@.service; do
        grep -q "^ExecStart=$1/bin/coswitch serve" "$1/lib/systemd/system/$unit" || fail "$unit starts another program"
    done
    if command -v systemd-analyze >/dev/null; then
        cp "$1/lib/systemd/system/coswitch@.service" "/run/coswitch@trial.service"
        systemd-analyze verify "$1/lib/systemd/system/coswitch.service" /run/coswitch@trial.service 2>problems ||
            fail "systemd-analyze: $(cat problems)"
        ! grep -i coswitch problems || fail "systemd-analyze finds something"
    fi
}

dpkg -i package.deb >said 2>&1 || fail "dpkg -i: $(cat said)"
parts=$(readlink /usr/lib/coswitch/parts)
look /usr "$parts" /etc/coswitch/cluster.yaml
dpkg --verify coswitch >verified && [ ! -s verified ] || fail "dpkg --verify: $(cat verified)"
say "the package installs: programs, pages, completions and units are in place"

# The file of the administrator survives another installation, and parts of an earlier build that jobs may need.
echo '# of the administrator' >>/etc/coswitch/cluster.yaml
mkdir /var/lib/coswitch/parts/0.0.1-earlier
dpkg -i package.deb >said 2>&1 || fail "dpkg -i once more: $(cat said)"
tail -1 /etc/coswitch/cluster.yaml | grep -q administrator || fail "an upgrade replaces /etc/coswitch/cluster.yaml"
[ -d /var/lib/coswitch/parts/0.0.1-earlier ] || fail "an upgrade removes the parts of running jobs"

# A process of a cluster, as the package sees it.
cp /bin/sleep "$parts/standing"
"$parts/standing" 60 &
standing=$!
! dpkg -r coswitch >said 2>&1 || fail "a package is removed below a cluster that stands"
grep -q "a cluster stands" said || fail "dpkg -r says: $(cat said)"
[ -x /usr/bin/coswitch ] || fail "a removal that is refused removes something"
kill $standing
wait $standing || true
say "an upgrade keeps the configuration and the parts of running jobs; a removal below them is refused"

dpkg -r coswitch >said 2>&1 || fail "dpkg -r: $(cat said)"
[ -f /etc/coswitch/cluster.yaml ] || fail "a removal takes the configuration along"
[ ! -e "$parts" ] || fail "a removal leaves $parts"
dpkg -P coswitch >said 2>&1 || fail "dpkg -P: $(cat said)"
same "dpkg -P"
say "the package is purged and leaves nothing"

zstd -q -d tarball.tar.zst
tar -xf tarball.tar
unpacked=$(echo coswitch-*-linux)
for prefix in /usr/local /opt/elsewhere; do
    "$unpacked/install.sh" "$prefix" >said 2>&1 || fail "install.sh: $(cat said)"
    "$unpacked/install.sh" "$prefix" >said 2>&1 || fail "install.sh once more: $(cat said)"
    parts=$prefix/lib/coswitch/$(readlink "$prefix/lib/coswitch/parts")
    MANPATH=$prefix/share/man look "$prefix" "$parts" "$prefix/share/doc/coswitch/examples/cluster.yaml"
    "$prefix/lib/coswitch/uninstall.sh" >said 2>&1 || fail "uninstall.sh: $(cat said)"
    same "uninstall.sh"
done
echo >>"$unpacked/bin/coswitch"
! "$unpacked/install.sh" >said 2>&1 || fail "a damaged tarball is installed"
same "an installation that is refused"
say "the tarball installs below two prefixes, and is removed and leaves nothing; a damaged one is refused"
