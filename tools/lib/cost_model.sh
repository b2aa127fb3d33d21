# The cost model of this machine: measured on first use, then kept in
# run/cost-model. Delete a file there to have it measured again.
# Source common.sh before this.

# How far the fit may be off in the median, in percent, without a warning.
cost_model_good_percent=15

# cost_model_path MODEL BLOCK_TOKENS: prints where the cost model of the CPU
# engine on this machine is or will be.
cost_model_path() {
  local cpu
  cpu=$(sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | head -n 1)
  cpu=$(tr -cs '[:alnum:]' - <<<"${cpu:-$(uname -m)}" | sed 's/^-//; s/-$//')
  echo "$root/run/cost-model/cpu-$1-$2-${cpu,,}.json"
}

# cost_model_make FILE MODEL BLOCK_TOKENS: profiles and fits it if it is not
# there yet.
cost_model_make() {
  local file=$1 log=${1%.json}.log profile=${1%.json}.csv
  [[ ! -s $file ]] || return 0
  mkdir -p "${file%/*}"
  say "measuring the CPU engine, once (kept in ${file#"$root"/})"
  if ! {
    "$root/build/workers/conductor-worker" \
      --profile "$profile" --engine cpu --model "$2" --block-tokens "$3" &&
      "$root/build/tools/conductor-fit" --out "$file.new" "$profile"
  } </dev/null >"$log" 2>&1; then
    tail -n 25 "$log" >&2
    die 1 "could not measure the CPU engine, see $log"
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
