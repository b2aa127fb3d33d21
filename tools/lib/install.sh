# Installs the packages that the build and the tests need on bare Debian 12. If
# nothing is missing, it needs neither network nor root.
# Source common.sh before this.

# Each line: a Debian package, and a check that makes it unnecessary: a command
# (cmd:), a pkg-config module (pc:) or an installed package (deb:).
build_needs='
build-essential   cmd:gcc
build-essential   cmd:make
meson             cmd:meson
ninja-build       cmd:ninja
pkg-config        cmd:pkg-config
python3           cmd:python3
python3-venv      deb:python3-venv
iproute2          cmd:ip
libevent-dev      pc:libevent_openssl
libc-ares-dev     pc:libcares
openssl           cmd:openssl
libssl-dev        pc:libcrypto
libjansson-dev    pc:jansson
libgsl-dev        pc:gsl
libhiredis-dev    pc:hiredis
libcunit1-dev     pc:cunit
libxxhash-dev     pc:libxxhash
libncurses-dev    pc:ncursesw
libopenblas-dev   pc:openblas
zlib1g-dev        pc:zlib
libzmq3-dev       pc:libzmq
liburing-dev      pc:liburing
libibverbs-dev    pc:libibverbs
python3-matplotlib deb:python3-matplotlib
help2man          cmd:help2man
'
# Gateways of the examples in docs/, a reader of metrics, and the Redis that
# several conductors share; tests start them themselves.
scenario_needs='
nginx             cmd:nginx
haproxy           cmd:haproxy
prometheus        cmd:promtool
tmux              cmd:tmux
redis-server      cmd:redis-server
stunnel4          cmd:stunnel
'
# Also needed by packaging/deb/build.
deb_needs='
git               cmd:git
dpkg-dev          cmd:dpkg-buildpackage
debhelper         cmd:dh
lintian           cmd:lintian
'
fuzz_needs='
clang             cmd:clang
libclang-rt-14-dev deb:libclang-rt-14-dev
'

# Run by tests/rdma/vm; the rest of the virtual machine is only unpacked.
rdma_needs='
qemu-system-x86   cmd:qemu-system-x86_64
busybox-static    cmd:busybox
cpio              cmd:cpio
xz-utils          cmd:xz
'

# need_is_met CHECK
need_is_met() {
  case $1 in
    cmd:*) PATH=$PATH:/usr/sbin command -v "${1#*:}" >/dev/null ;;
    pc:*) pkg-config --exists "${1#*:}" 2>/dev/null ;;
    deb:*)
      [[ $(dpkg-query -W -f '${db:Status-Abbrev}' "${1#*:}" 2>/dev/null) \
        == ii* ]]
      ;;
  esac
}

# missing_packages NEEDS: prints the packages to install.
missing_packages() {
  local package check
  while read -r package check; do
    [[ -z $package ]] || need_is_met "$check" || echo "$package"
  done <<<"$1" | sort -u
}

# without_services COMMAND...: runs a command with a policy-rc.d that prevents
# new services from starting: nginx and haproxy would take port 80. An existing
# policy-rc.d is kept.
without_services() (
  policy=/usr/sbin/policy-rc.d
  if [[ ! -e $policy ]]; then
    trap '"${sudo[@]}" rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' | "${sudo[@]}" tee "$policy" >/dev/null
    "${sudo[@]}" chmod 755 "$policy"
  fi
  "$@"
)

# install_missing NEEDS: installs missing packages, or exits with the reason.
install_missing() {
  local packages sudo=()
  mapfile -t packages < <(missing_packages "$1")
  ((${#packages[@]})) || return 0

  command -v apt-get >/dev/null ||
    die 1 "missing: ${packages[*]}; this is not Debian, install them yourself"
  if ((EUID != 0)); then
    command -v sudo >/dev/null ||
      die 1 "missing: ${packages[*]}; run this as root once, or install sudo"
    sudo=(sudo)
  fi
  say "installing ${packages[*]}"
  local log=$root/run/install.log
  local apt=("${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y
    -o DPkg::Lock::Timeout=300)
  if ! { "${apt[@]}" update && without_services \
    "${apt[@]}" install --no-install-recommends "${packages[@]}"; } \
    </dev/null >"$log" 2>&1; then
    tail -n 15 "$log" >&2
    die 1 "apt-get failed, see $log"
  fi
  # Services must not start at boot, either.
  local package
  for package in nginx haproxy prometheus redis-server stunnel4; do
    [[ " ${packages[*]} " != *" $package "* ]] ||
      "${sudo[@]}" systemctl disable "$package" >>"$log" 2>&1 || true
  done
}
