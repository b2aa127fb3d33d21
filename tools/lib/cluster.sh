# Starts a conductor and workers on loopback, each logging into a folder of
# this run, and ends them when the script ends, for any reason. Source common.sh
# before this. The programs come from $built, by default the project's build.

# Our children: name by process id. They die with this script even if it is
# killed; cluster_end ends them properly.
declare -A children=()
lenient=

# check_policy NAME: exits if the conductor has no such policy.
check_policy() {
  local said
  said=$("${built:-$root/build}/conductor/conductor" --dump-config \
    --set "policy=$1" 2>&1 >/dev/null) && return
  said=${said%%$'\n'*}
  die 2 "--policy: '$1' is ${said#*": \"$1\": is "}"
}

# new_run: creates the first unused folder run/N, and sets run to it.
new_run() {
  local n=1
  while ! mkdir "$root/run/$n" 2>/dev/null; do
    [[ -e $root/run/$n ]] || die 1 "cannot create $root/run/$n"
    n=$((n + 1))
  done
  run=$root/run/$n
}

# cluster_begin [FOLDER]: creates the folder of this run, $run, and ends all
# children when the script ends.
cluster_begin() {
  if (($#)); then
    run=$1
    rm -rf "$run"
    mkdir -p "$run"
  else
    new_run
  fi
  trap cluster_end EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
}

# launch NAME COMMAND...: starts a command in the background, with a log.
launch() {
  local name=$1
  shift
  setpriv --pdeathsig KILL -- "$@" \
    </dev/null >"$run/$name.log" 2>&1 &
  children[$!]=$name
}

# show_log NAME: prints the end of a child's log, after a failure.
show_log() {
  printf '%s\n' "--- the end of $run/$1.log" >&2
  tail -n 20 "$run/$1.log" >&2
}

# quietly COMMAND...: runs a command that waits, without bash's message about a
# killed child; child_ended reports it.
quietly() { "$@"; } 2>/dev/null

# describe_status STATUS: prints how a child ended.
describe_status() {
  if (($1 > 128)); then
    echo "was killed (signal $(($1 - 128)), $(kill -l "$1"))"
  else
    echo "ended with status $1"
  fi
}

# child_ended PID: exits with the end of the child's log; but if $lenient, a
# cluster goes on without a worker, whose requests go to the others.
child_ended() {
  local name=${children[$1]} status=0 how
  quietly wait "$1" || status=$?
  unset "children[$1]"
  how=$(describe_status "$status")
  if [[ -n $lenient && $name != conductor ]]; then
    say "$name $how; serving on without it"
    return
  fi
  show_log "$name"
  die 1 "$name $how"
}

# check_children: handles children that have ended.
check_children() {
  local pid
  for pid in "${!children[@]}"; do
    kill -0 "$pid" 2>/dev/null || child_ended "$pid"
  done
}

# json_string TEXT
json_string() {
  local text=${1//\\/\\\\}
  printf '"%s"' "${text//\"/\\\"}"
}

# cluster_conductor MODEL BLOCK_TOKENS POLICY COST_MODEL [QUEUE_ORDER]: starts
# the conductor, with $correction_ms and $slo_ms (of the TTFT) if they are set.
# Sets http_port and worker_port.
cluster_conductor() {
  cat >"$run/conductor.json" <<END
{
  "listen": "127.0.0.1:0",
  "worker_listen": "127.0.0.1:0",
  "model": $(json_string "$1"),
  "block_tokens": $2,
  "policy": $(json_string "$3"),
  "queue_order": $(json_string "${5:-uncached_first}"),
  "correction_ms": ${correction_ms:-60000},
  "slo_ttft_ms": ${slo_ms:-0},
  "cost_model": $(json_string "$4")
}
END
  launch conductor "${built:-$root/build}/conductor/conductor" \
    --config "$run/conductor.json" --ports-file "$run/ports.json"
  local i ports='"http": *([0-9]+), *"worker": *([0-9]+)'
  for ((i = 0; i < 200; i++)); do
    check_children
    if [[ -f $run/ports.json && $(<"$run/ports.json") =~ $ports ]]; then
      http_port=${BASH_REMATCH[1]} worker_port=${BASH_REMATCH[2]}
      return
    fi
    quietly sleep 0.05
  done
  show_log conductor
  die 1 'the conductor does not say which ports it has'
}

# cluster_worker NAME ROLE: starts a worker of $engine with $kv_mib of cache,
# $worker_options, if any, and unless it only decodes $disk_mib on disk, if set.
worker_options=()
cluster_worker() {
  local more=("${worker_options[@]}")
  [[ $engine != timed ]] || more+=(--cost-model "$cost_model")
  # Otherwise the first worker would take all memory of the card.
  [[ $engine != cuda ]] || more+=(--device-kv-mib "$kv_mib")
  [[ -z ${disk_mib:-} || $2 == decode ]] ||
    more+=(--disk-path "$run/$1.kv" --disk-mib "$disk_mib")
  launch "$1" "${built:-$root/build}/workers/conductor-worker" --name "$1" \
    --role "$2" --engine "$engine" --model tiny \
    --block-tokens "$block_tokens" --kv-mib "$kv_mib" \
    --conductor "127.0.0.1:$worker_port" "${more[@]}"
}

# cluster_wait_ready PREFILL DECODE
cluster_wait_ready() {
  local i have=
  for ((i = 0; i < 300; i++)); do
    check_children
    # Silent, since Ctrl-C has Python print where it was.
    have=$(python3 "$root/tools/lib/instances.py" "$http_port" 2>/dev/null) ||
      have=
    [[ $have != "$1 $2" ]] || return 0
    ((i % 30 != 29)) ||
      say "waiting: ${have% *} of $1 prefill and ${have#* } of $2 decode" \
        "workers are ready"
    quietly sleep 0.1
  done
  show_log conductor
  die 1 "not ready: waited for $1 prefill and $2 decode workers, have" \
    "'${have:-no answer}'"
}

# cluster_replay: replays $trace into $run/report.json, in the background, so
# that signals are handled at once. Effective requests have their first token
# within $effective_s, if it is set.
cluster_replay() {
  local status=0
  local options=(--speed "$speed" --length-scale "$length_scale"
    --report "$run/report.json" --requests-csv "$run/requests.csv")
  [[ -z $requests ]] || options+=(--requests "$requests")
  [[ -z ${effective_s:-} ]] || options+=(--effective-ttft "$effective_s")
  setpriv --pdeathsig KILL -- \
    "${built:-$root/build}/tools/conductor-replay" live \
    --url "http://127.0.0.1:$http_port" --trace "$trace" "${options[@]}" \
    </dev/null &
  local pid=$!
  children[$pid]=replay
  quietly wait "$pid" || status=$?
  unset "children[$pid]"
  check_children
  [[ -s $run/report.json ]] || die 1 "the replay failed with status $status"
}

# other_ticks: prints the time for which the processors have worked for others
# than our children, in ticks, on this machine or (steal) on its host.
other_ticks() {
  local pid stat ticks
  read -r -a stat </proc/stat
  ticks=$((stat[1] + stat[2] + stat[3] + stat[6] + stat[7] + stat[8]))
  for pid in "${!children[@]}"; do
    [[ -r /proc/$pid/stat ]] || continue
    read -r -a stat < <(sed 's/.*) //' "/proc/$pid/stat") || continue
    ticks=$((ticks - stat[11] - stat[12]))
  done
  echo "$ticks"
}

# report_unanswered: prints how many requests of $run/report.json got no answer:
# they failed, were rejected, or were never sent.
report_unanswered() {
  python3 -c 'import json, sys
requests = json.load(open(sys.argv[1]))["requests"]
print(requests["total"] - requests["completed"])' "$run/report.json"
}

# cluster_takes_ctrl_c: from now on Ctrl-C only ends cluster_stay.
cluster_takes_ctrl_c() {
  stopping=
  trap 'stopping=1' INT
}

# cluster_stay: serves until Ctrl-C, or until the conductor ends.
cluster_stay() {
  while quietly sleep 0.5 && [[ -z $stopping ]]; do check_children; done
}

# end_children: ends all children with SIGTERM, after ten seconds with SIGKILL.
end_children() {
  local pid i
  ((${#children[@]})) || return 0
  kill -TERM "${!children[@]}" 2>/dev/null || true
  for ((i = 0; i < 100; i++)); do
    for pid in "${!children[@]}"; do
      kill -0 "$pid" 2>/dev/null || unset "children[$pid]"
    done
    ((${#children[@]})) || return 0
    sleep 0.1 || true # Ctrl-C ends it, too
  done
  for pid in "${!children[@]}"; do
    printf '%s did not end in time, killed\n' "${children[$pid]}" >&2
    kill -KILL "$pid" 2>/dev/null || true
  done
}

# cluster_end: ends all children, and deletes the workers' KV on disk. A signal
# that comes meanwhile ends the script afterwards.
cluster_end() {
  local signalled=
  trap - EXIT
  trap 'signalled=130' INT
  trap 'signalled=143' TERM HUP
  end_children
  rm -f "$run"/*.kv
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
  [[ -z $signalled ]] || exit "$signalled"
}
