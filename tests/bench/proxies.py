"""nginx as a plain proxy and the conductor, before the same engine."""
import glob
import json
import os
import shutil
import socket
import subprocess
import time

PROCESSORS = sorted(os.sched_getaffinity(0))
NGINX = '''daemon off; worker_processes 1; pid nginx.pid;
error_log error.log; events {{ worker_connections 2048; }}
http {{
  access_log off; keepalive_requests 1000000; client_max_body_size 16m;
  client_body_buffer_size 1m; client_body_temp_path tmp; proxy_temp_path tmp;
  fastcgi_temp_path tmp; uwsgi_temp_path tmp; scgi_temp_path tmp;
  upstream engine {{ server 127.0.0.1:{engine}; keepalive 128;
    keepalive_requests 1000000; }}
  server {{ listen 127.0.0.1:{port};
    location / {{ proxy_pass http://engine; proxy_http_version 1.1;
      proxy_set_header Connection ""; proxy_buffering off;
      proxy_request_buffering off; }} }}
}}
'''


def place(pid, number):
    """Has a process run on one processor alone."""
    processor = PROCESSORS[number % len(PROCESSORS)]
    for task in os.listdir(f'/proc/{pid}/task'):
        os.sched_setaffinity(int(task), {processor})


def cpu_s(pid):
    """User's and system's time of a process."""
    total = 0
    for path in glob.glob(f'/proc/{pid}/task/*/schedstat'):
        with open(path, encoding='ascii') as f:
            total += int(f.read().split()[0])
    return total / 1e9


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


def start_nginx(folder, engine_port):
    """(process, its worker's pid, its port); zeros without nginx."""
    program = shutil.which('nginx', path=os.environ['PATH'] + ':/usr/sbin')
    if not program:
        return None, 0, 0
    port, conf = free_port(), os.path.join(folder, 'nginx.conf')
    with open(conf, 'w', encoding='utf-8') as f:
        f.write(NGINX.format(engine=engine_port, port=port))
    main_process = subprocess.Popen([program, '-p', folder, '-c', conf])
    children = f'/proc/{main_process.pid}/task/{main_process.pid}/children'
    while True:
        with open(children, encoding='ascii') as f:
            pids = f.read().split()
        if pids:
            return main_process, int(pids[0]), port
        time.sleep(0.05)


def start_conductor(folder, build, engine_port):
    path, ports = (os.path.join(folder, n) for n in ('c.json', 'ports'))
    with open(path, 'w', encoding='utf-8') as f:
        json.dump({'listen': '127.0.0.1:0', 'engines': [
            {'name': 'a', 'url': f'http://127.0.0.1:{engine_port}',
             'model': 'm'}]}, f)
    process = subprocess.Popen(
        [os.path.join(build, 'conductor', 'conductor'), '-c', path,
         '--ports-file', ports], stderr=subprocess.DEVNULL)
    while not os.path.exists(ports):
        time.sleep(0.05)
    time.sleep(0.5)  # the engine is asked for its health
    with open(ports, encoding='utf-8') as f:
        return process, process.pid, json.load(f)['http']
