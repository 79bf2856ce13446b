# What ckpt(3) names is in the public headers, and so is each header.
root=$(cd "$(dirname "$0")/../../.." && pwd)
man=$root/docs/man/ckpt.3
grep -oE '\bckpt_[a-z_]+(\.h)?' "$man" | sort -u | while read -r name; do
	case $name in
	*.h) [ -e "$root/libckpt/include/$name" ] || echo "$name: no such header" ;;
	*) grep -qw "$name" "$root"/libckpt/include/*.h || echo "$name is in no header" ;;
	esac
done
for header in "$root"/libckpt/include/*.h; do
	grep -qF "${header##*/}" "$man" || echo "ckpt(3) does not name ${header##*/}"
done
! command -v groff > /dev/null || groff -ww -man -Tascii "$man" 2>&1 > /dev/null
