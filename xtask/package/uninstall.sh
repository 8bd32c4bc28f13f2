#!/bin/sh
# Removes what install.sh has installed. What clusters have written stays, in /var/lib/coswitch and
# /var/lib/coswitch-clusters.
set -eu

own=$(dirname "$(readlink -f "$0")")
prefix=$(dirname "$(dirname "$own")")
[ -f "$own/FILES" ] || {
    echo "uninstall.sh: no list of files in $own: call PREFIX/lib/coswitch/uninstall.sh, which install.sh makes" >&2
    exit 2
}
for exe in /proc/[0-9]*/exe; do
    case $(readlink "$exe" || true) in
    "$own"/*)
        echo "uninstall.sh: a cluster stands on this machine (process $(basename "${exe%/exe}")), and its jobs" >&2
        echo "need these files: \`systemctl stop coswitch\` or \`coswitch clean --standing\` ends them" >&2
        exit 1
        ;;
    esac
done

while read -r file; do
    rm -f "$prefix/$file"
done <"$own/FILES"
# Each before the one above it; `.` is the prefix itself.
made=$(LC_ALL=C sort -ru "$own/DIRECTORIES")
rm -rf "$own"
for directory in $made; do
    [ ! -d "$prefix/$directory" ] || rmdir --ignore-fail-on-non-empty "$prefix${directory#.}"
done
echo "removed coswitch from $prefix"
