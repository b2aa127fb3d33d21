# A bare Debian 12 in a folder, and commands in it. Source it; whoever does so
# has a function die().

# The first Debian mirror of apt's sources, in either of their formats.
host_mirror() {
  cat /etc/apt/sources.list.d/*.sources /etc/apt/sources.list \
    /etc/apt/sources.list.d/*.list 2>/dev/null |
    sed -nE 's/^URIs: *([^ ]+).*/\1/p
             s/^deb +(\[[^]]*\] +)?([^ ]+) +bookworm +.*/\2/p' |
    head -n 1
}

# need_bare_root BASE MIRROR: dies if make_bare_root() could not do it.
need_bare_root() {
  ((EUID == 0)) || die 'needs root'
  [[ -n $1 ]] || command -v debootstrap >/dev/null ||
    die 'debootstrap is not installed'
  [[ -n $1$2 ]] || die 'no mirror in /etc/apt; use --mirror'
}

# make_bare_root FOLDER BASE MIRROR [SUITE]: a copy of the root file system BASE,
# or a new one from the mirror, with what this machine needs to reach its
# packages: sources, keys, proxies, names, certificates.
make_bare_root() {
  local bare=$1 base=$2 mirror=$3 suite=${4:-bookworm} path
  if [[ -n $base ]]; then
    cp -a "$base/." "$bare"
  else
    echo '== making a bare root file system'
    debootstrap --variant=minbase "$suite" "$bare" "$mirror" >/dev/null
  fi
  cp -a /etc/apt/. "$bare/etc/apt/"
  [[ ! -e /etc/apt/sources.list ]] && rm -f "$bare/etc/apt/sources.list"
  for path in /usr/share/keyrings /etc/ssl/certs /usr/share/ca-certificates \
    /usr/local/share/ca-certificates; do
    [[ ! -d $path ]] ||
      { mkdir -p "$bare$path" && cp -a "$path/." "$bare$path/"; }
  done
  cp -L /etc/resolv.conf /etc/hosts "$bare/etc/"
}

# run_in_root FOLDER USER COMMAND: by bash, as USER[:GROUP]. Everything that was
# started in there ends with it.
run_in_root() {
  local name environment=(HOME=/root
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin)
  for name in http_proxy https_proxy no_proxy; do
    [[ -z ${!name:-} ]] || environment+=("$name=${!name}")
  done
  unshare --mount --pid --fork --kill-child --mount-proc="$1/proc" \
    chroot --userspec="$2" "$1" env -i "${environment[@]}" \
    bash -c "$3" </dev/null
}
