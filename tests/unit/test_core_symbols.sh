#!/bin/sh
# The decision archive is pure: it needs nothing from outside but memory,
# string and math functions, and it has no variable of its own. Archives that
# it is linked with follow it in the arguments and have to be pure too.
# Usage: test_core_symbols.sh ARCHIVE...
set -eu

memory='calloc|free|madvise|malloc|mmap(64)?|mremap|munmap|realloc'
string='memchr|memcmp|memcpy|memmove|memset|strcmp|strlen|strncmp|strncpy'
math='ceil|exp|fabs|floor|fma|fmax|fmin|llround|log|lround|nextafter|pow|round|sqrt'
# What compilers and sanitizers put in by themselves.
compiler='_GLOBAL_OFFSET_TABLE_|__stack_chk_fail|__(mem|str)[a-z]*_chk'
compiler="$compiler|__(asan|ubsan|sanitizer|gcov|llvm)_.*|__udivti3|__multi3"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
nm "$@" | awk 'NF == 3 && $2 ~ /[A-TV-Z]/ {print $3}' |
    sort -u > "$work/defined"
nm "$@" | awk '$1 == "U" {print $2}' | sort -u > "$work/undefined"
if [ ! -s "$work/defined" ]; then
    echo "no symbols found in $*"
    exit 1
fi

bad=$(comm -13 "$work/defined" "$work/undefined" |
    grep -vxE "$memory|$string|$math|$compiler" || true)
if [ -n "$bad" ]; then
    echo "not allowed in the core:" $bad
    exit 1
fi

# A sanitizer's or a coverage build has its own variables.
if ! grep -qE '__(asan|gcov|llvm)_' "$work/undefined"; then
    variables=$(objdump -t "$@" |
        awk '$0 ~ / O / && / \.(data|bss|tdata|tbss)[ \t]/ {print $NF}
             / O \*COM\*/ {print $NF}')
    if [ -n "$variables" ]; then
        echo "variables in the core:" $variables
        exit 1
    fi
fi
echo "pure: $(wc -l < "$work/undefined") symbols looked at"
