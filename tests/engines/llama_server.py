"""Runs llama.cpp's server, from the package xllamacpp, on 127.0.0.1.

usage: llama_server.py GGUF PORT [NAME]
"""
import signal
import sys

import xllamacpp


def main():
    params = xllamacpp.CommonParams()
    params.model.path = sys.argv[1]
    params.model_alias = {sys.argv[3] if len(sys.argv) > 3 else 'tiny'}
    params.hostnames = ['127.0.0.1']
    params.port = int(sys.argv[2])
    params.n_ctx = 32768
    params.n_parallel = 4
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    params.endpoint_metrics = True
    params.endpoint_slots = True
    params.warmup = False
    server = xllamacpp.Server(params)  # listens when this returns
    print(f'listening on {server.listening_address}', flush=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})


if __name__ == '__main__':
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    main()
