# What every script of tools/ shares: where the project is, how it speaks,
# and one lock around what must not run twice at once. Source it.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

say() { printf '== %s\n' "$*"; }

# die STATUS MESSAGE: says what went wrong and leaves.
die() {
  local status=$1
  shift
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit "$status"
}

# with_lock COMMAND...: runs the command while no other script of this clone
# installs or builds. The command must not leave a process behind: it would
# inherit the lock. Ctrl-C ends it with 130 and without a word of failure.
with_lock() {
  mkdir -p "$root/run"
  (
    trap 'exit 130' INT
    flock -n 9 || {
      say 'waiting for another tools/up or tools/test to finish building'
      flock 9
    }
    "$@"
  ) 9>"$root/run/.lock"
}

# is_uint TEXT: whether it is a whole number without a sign.
is_uint() { [[ $1 =~ ^[0-9]{1,9}$ ]]; }

# is_positive TEXT: whether it is a decimal number above zero.
is_positive() {
  [[ $1 =~ ^[0-9]{1,9}(\.[0-9]{1,9})?$ && $1 =~ [1-9] ]]
}
