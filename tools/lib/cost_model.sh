# The cost model of this machine: measured on first use, then kept in
# run/cost-model until it is measured again.
# Source common.sh before this.

# Largest median error of the fit without a warning, in percent.
cost_model_good_percent=15

# On two idle cores. The prefills through a conductor alone are spread over 28 s.
cost_model_takes_s=45

# device_name ENGINE: prints the engine's hardware: the processor or the card.
device_name() {
  if [[ $1 == cuda ]]; then
    nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null |
      head -n 1
  else
    sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | head -n 1
  fi
}

# cost_model_path ENGINE MODEL BLOCK_TOKENS: prints the path of the cost model
# of an engine (cpu or cuda) on this machine; the file may not exist yet.
cost_model_path() {
  local name
  name=$(device_name "$1")
  name=$(tr -cs '[:alnum:]' - <<<"${name:-$(uname -m)}" |
    sed 's/^-//; s/-$//')
  echo "$root/run/cost-model/$1-$2-$3-${name,,}.json"
}

# measure_alone PROFILE ENGINE MODEL BLOCK_TOKENS: profiles the engine in the
# step loop of a worker without other requests.
measure_alone() {
  "$root/build/workers/conductor-worker" --profile "$1" --engine "$2" \
    --model "$3" --block-tokens "$4" </dev/null
}

# measure_served PROFILE ENGINE MODEL BLOCK_TOKENS: measures the profile's
# prefills again in a cluster: one after the other, through a conductor, with a
# push of KV to a decode worker meanwhile. Sets the variables of cluster.sh.
measure_served() {
  engine=$2 block_tokens=$4 kv_mib=512 disk_mib=
  cluster_begin "${1%.csv}.served"
  python3 "$root/tools/lib/serving_profile.py" trace "$4" >"$run/trace.jsonl"
  cluster_conductor "$3" "$4" round_robin ''
  cluster_worker prefill-0 prefill
  cluster_worker decode-0 decode
  cluster_wait_ready 1 1
  setpriv --pdeathsig KILL -- "$root/build/tools/conductor-replay" live \
    --url "http://127.0.0.1:$http_port" --trace "$run/trace.jsonl" \
    --block-tokens "$4" --max-in-flight 1 --requests-csv "$run/requests.csv" \
    </dev/null
  cluster_end
  python3 "$root/tools/lib/serving_profile.py" rows "$run/requests.csv" \
    "$1" >"$1.new"
  mv "$1.new" "$1"
}

# cost_model_measure FILE ENGINE MODEL BLOCK_TOKENS: measures and fits, in a
# subshell that ends at the first failure.
cost_model_measure() (
  profile=${1%.json}.csv
  set -e
  measure_alone "$profile" "${@:2}"
  measure_served "$profile" "${@:2}"
  "$root/build/tools/conductor-fit" --out "$1.new" "$profile"
  mv "$1.new" "$1"
)

# cost_model_make FILE ENGINE MODEL BLOCK_TOKENS: makes the cost model if FILE
# does not exist.
cost_model_make() {
  local file=$1 log=${1%.json}.log status began=$SECONDS
  [[ ! -s $file ]] || return 0
  mkdir -p "${file%/*}"
  say "measuring engine $2, once, which takes about $cost_model_takes_s s on two" \
    "idle cores (kept in ${file#"$root"/})"
  # Not in a condition: there bash would ignore the set -e of the subshell.
  set +e
  cost_model_measure "$@" 2>&1 | show_progress "$log" \
    '(profiling: [0-9]+ of [0-9]+|sent [0-9]+/[0-9]+)'
  status=${PIPESTATUS[0]}
  set -e
  ((status)) || { say "measured in $((SECONDS - began)) s" && return; }
  tail -n 25 "$log" >&2
  die 1 "could not measure engine $2, see $log"
}

# cost_model_show FILE: prints the error of the fit, with a warning if it is
# large.
cost_model_show() {
  local file=$1 dir=${1%/*} line status=0
  line=$(python3 "$root/tools/lib/fit_error.py" "$file" \
    "$cost_model_good_percent") || status=$?
  ((status == 0 || status == 3)) || die 1 "cannot read $file, delete it"
  say "$line"
  ((status == 0)) || printf '%s: %s\n' "${0##*/}" \
    "warning: predictions will be poor; was this machine busy? To measure \
again: tools/up --measure" >&2
}
