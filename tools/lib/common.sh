# Shared by all scripts of tools/: the project's folder, messages, progress,
# options, and a lock for work that must not run twice at once. Source it.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

say() { printf '== %s\n' "$*"; }

# die STATUS MESSAGE: prints an error and exits.
die() {
  local status=$1
  shift
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit "$status"
}

# show_progress LOG PATTERN: copies its input to LOG, and shows of each line what
# the first group of PATTERN matches: on a terminal in one line that changes,
# else every five seconds.
show_progress() {
  local line last= shown=$SECONDS terminal=
  [[ ! -t 1 ]] || terminal=1
  while IFS= read -r line || [[ -n $line ]]; do
    printf '%s\n' "$line" >&3
    [[ $line =~ $2 ]] || continue
    last=${BASH_REMATCH[1]}
    if [[ -n $terminal ]]; then
      printf '\r\033[K   %s' "$last"
    elif ((SECONDS - shown >= 5)); then
      printf '   %s\n' "$last"
      shown=$SECONDS last=
    fi
  done 3>"$1"
  if [[ -n $terminal ]]; then
    printf '\r\033[K'
  elif [[ -n $last ]]; then
    printf '   %s\n' "$last"
  fi
}

# with_lock COMMAND...: runs the command while no other script of this clone
# installs or builds; with $lock set, while no other script holds that lock. The
# command must not leave a process behind: it would inherit the lock. Ctrl-C
# ends it silently with 130.
with_lock() {
  mkdir -p "$root/run"
  (
    trap 'exit 130' INT
    flock -n 9 || {
      say 'waiting for another tools/up or tools/test to finish building'
      flock 9
    }
    "$@"
  ) 9>"$root/run/${lock:-.lock}"
}

# descendants PID: prints the processes that a process has started, and theirs.
descendants() {
  local pid
  for pid in $(cat "/proc/$1/task/$1/children" 2>/dev/null); do
    echo "$pid"
    descendants "$pid"
  done
}

# end_work PID STATUS: ends a process and its descendants with SIGTERM, waits up
# to ten seconds until all have ended, and exits.
end_work() {
  local pid pids i running=1
  mapfile -t pids < <(echo "$1" && descendants "$1")
  kill "${pids[@]}" 2>/dev/null || true
  for ((i = 0; i < 100 && running; i++)); do
    running=0
    for pid in "${pids[@]}"; do
      [[ ! -r /proc/$pid/stat || $(cat "/proc/$pid/stat" 2>/dev/null) =~ \)\ Z ]] ||
        running=1
    done
    ((!running)) || sleep 0.1 || true
  done
  exit "$2"
}

# ends_with_us COMMAND...: runs a command that a signal to this script ends, with
# all that it has started. In the foreground bash would wait for it.
ends_with_us() {
  "$@" &
  local work=$! # its value now goes into the traps
  trap "end_work $work 130" INT
  trap "end_work $work 143" TERM HUP
  wait "$work" || exit
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
}

# nearest_option NAME: asks whether the option was meant that begins like NAME
# for longest; nothing if none has its first two letters.
nearest_option() {
  local known nearest= n=${#1}
  for ((; n >= 2; n--)); do
    for known in "${!kinds[@]}"; do
      [[ $known != "${1:0:n}"* || (-n $nearest && ! $known < $nearest) ]] ||
        nearest=$known
    done
    [[ -z $nearest ]] || { printf ': did you mean --%s?' "$nearest" && return; }
  done
}

# read_options WORD...: reads a command line into variables: --kv-mib into kv_mib.
# The associative array `kinds` has each option's kind: flag, text, file, uint,
# count (above 0), positive (a decimal number above 0), or its allowed words.
read_options() {
  local name kind what
  while (($#)); do
    [[ $1 != -h && $1 != --help ]] || { usage && exit 0; }
    name=${1#--} what=
    kind=${kinds[${name:-none}]:-}
    [[ $1 == --* && -n $kind ]] ||
      die 2 "unknown option '$1'$(nearest_option "$name"); see --help"
    [[ $kind != flag ]] || set -- "$1" 1 "${@:2}"
    (($# > 1)) || die 2 "$1 needs a value; see --help"
    case $kind in
      flag | text) ;;
      file)
        [[ -f $2 && -r $2 ]] || die 2 "$1: cannot read '$2'"
        set -- "$1" "$(realpath -- "$2")" "${@:3}"
        ;;
      uint | count)
        [[ $2 =~ ^[0-9]{1,9}$ && ($kind == uint || $2 =~ [1-9]) ]] ||
          what="a count${kind#uint}" what=${what/countcount/count above 0}
        ;;
      positive)
        [[ $2 =~ ^[0-9]{1,9}(\.[0-9]{1,9})?$ && $2 =~ [1-9] ]] ||
          what='a number above 0'
        ;;
      *) [[ " $kind " == *" $2 "* ]] || what="one of: $kind" ;;
    esac
    [[ -z $what ]] || die 2 "$1: '$2' is not $what"
    printf -v "${name//-/_}" %s "$2"
    shift 2
  done
}
