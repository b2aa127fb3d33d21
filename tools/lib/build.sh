# Configures and builds with meson. Source common.sh before this.

build_targets=()

# build DIR COMPILER OPTION...: builds the project into $root/DIR, quietly;
# shows the compiler's output if it fails. Continues an earlier build. With the
# array build_targets set, builds only those.
build() {
  local dir=$root/$1 compiler=$2
  shift 2
  local log=$root/run/${dir##*/}.log
  if [[ ! -f $dir/build.ninja ]]; then
    say "configuring ${dir##*/}"
    rm -rf "$dir"
    if ! CC=$compiler meson setup "$dir" "$root" "$@" \
      </dev/null >"$log" 2>&1; then
      tail -n 25 "$log" >&2
      rm -rf "$dir"
      die 1 "meson could not configure, see $log"
    fi
  fi
  say "building ${dir##*/}"
  # A newer compiler may print other warnings: they are errors only in CI.
  if [[ ${CI:-} == true ]]; then
    meson configure "$dir" -Dwerror=true </dev/null >"$log" 2>&1 ||
      die 1 "meson could not configure, see $log"
  fi
  if ! ninja -C "$dir" "${build_targets[@]}" </dev/null 2>&1 |
    show_progress "$log" '^(\[[0-9]+/[0-9]+\])'; then
    grep -vE '^\[[0-9]+/[0-9]+\] ' "$log" | tail -n 60 >&2
    die 1 "the build failed, see $log"
  fi
}
