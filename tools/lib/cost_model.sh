# The cost model of this machine: measured on first use, then kept in
# run/cost-model. Delete a file there to have it measured again.
# Source common.sh before this.

# How far the fit may be off in the median, in percent, without a warning.
cost_model_good_percent=15

# device_name ENGINE: prints what it computes on: the processor, or the card.
device_name() {
  if [[ $1 == cuda ]]; then
    nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null |
      head -n 1
  else
    sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | head -n 1
  fi
}

# cost_model_path ENGINE MODEL BLOCK_TOKENS: prints where the cost model of
# that engine (cpu or cuda) on this machine is or will be.
cost_model_path() {
  local name
  name=$(device_name "$1")
  name=$(tr -cs '[:alnum:]' - <<<"${name:-$(uname -m)}" |
    sed 's/^-//; s/-$//')
  echo "$root/run/cost-model/$1-$2-$3-${name,,}.json"
}

# cost_model_make FILE ENGINE MODEL BLOCK_TOKENS: profiles and fits it if it is not
# there yet.
cost_model_make() {
  local file=$1 log=${1%.json}.log profile=${1%.json}.csv
  [[ ! -s $file ]] || return 0
  mkdir -p "${file%/*}"
  say "measuring engine $2, once (kept in ${file#"$root"/})"
  if ! {
    "$root/build/workers/conductor-worker" \
      --profile "$profile" --engine "$2" --model "$3" --block-tokens "$4" &&
      "$root/build/tools/conductor-fit" --out "$file.new" "$profile"
  } </dev/null >"$log" 2>&1; then
    tail -n 25 "$log" >&2
    die 1 "could not measure engine $2, see $log"
  fi
  mv "$file.new" "$file"
}

# cost_model_show FILE: one line with how good its fit is, and a warning if it
# is not.
cost_model_show() {
  local file=$1 dir=${1%/*} line status=0
  line=$(python3 "$root/tools/lib/fit_error.py" "$file" \
    "$cost_model_good_percent") || status=$?
  ((status == 0 || status == 3)) || die 1 "cannot read $file, delete it"
  say "$line"
  ((status == 0)) || printf '%s: %s\n' "${0##*/}" \
    "warning: predictions will be poor; was this machine busy? To measure \
again: rm -r ${dir#"$root"/}" >&2
}
