#!/bin/sh
# Installs this directory below /usr/local, or below the prefix given: ./install.sh [PREFIX]. A second call replaces
# what an earlier one has installed; jobs that run meanwhile keep the parts that they were launched with.
set -eu
umask 022

cd "$(dirname "$0")"
prefix=${1:-/usr/local}
case $prefix in
/*) ;;
*)
    echo "install.sh: the prefix must be an absolute path, not $prefix" >&2
    exit 2
    ;;
esac
sha256sum --quiet --check SHA256SUMS || {
    echo "install.sh: this directory is damaged; nothing was installed" >&2
    exit 1
}

# What is not there yet is removed again by uninstall.sh.
own=$prefix/lib/coswitch
made=$(awk -F/ '{ path = "."; for (i = 1; i <= NF; i++) { print path; path = path "/" $i } }' FILES | sort -u |
    while read -r directory; do
        [ -d "$prefix/$directory" ] || echo "$directory"
    done)

while read -r file; do
    mode=644
    [ ! -x "$file" ] || mode=755
    case $file in
    lib/systemd/*)
        install -d "$prefix/$(dirname "$file")"
        sed "s|/usr/local/|$prefix/|" "$file" >"$prefix/$file.new"
        mv "$prefix/$file.new" "$prefix/$file"
        ;;
    *) install -D -m "$mode" "$file" "$prefix/$file" ;;
    esac
done <FILES

# A job names its launcher and its driver by their paths, also in its snapshots: so each build has a directory.
if [ ! -d "$own/@PARTS@" ]; then
    rm -rf "$own/@PARTS@.new"
    install -d "$own/@PARTS@.new"
    for part in coswitchd coswitch-launcher libcoswitch_fi.so libcoswitch_criu.so; do
        install -m 755 "$own/$part" "$own/@PARTS@.new/$part"
    done
    mv "$own/@PARTS@.new" "$own/@PARTS@"
fi
ln -sfn "@PARTS@" "$own/parts"
install -m 755 uninstall.sh "$own/uninstall.sh"
install -m 644 FILES "$own/FILES"
[ -z "$made" ] || echo "$made" >>"$own/DIRECTORIES"

echo "installed coswitch below $prefix; $own/uninstall.sh removes it"
case $prefix in
/usr/local | /usr) ;;
*) echo "systemd does not look there: systemctl link $prefix/lib/systemd/system/coswitch.service" ;;
esac
