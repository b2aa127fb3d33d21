/* What the files of the stand-in share. */
#ifndef EMULATE_H
#define EMULATE_H

#include <cstdio>
#include <cstdlib>

#include "cuda_runtime.h"

/* Ends the program: what the kernels did would be an error on a card too. */
[[noreturn]] inline void emulate_die(const char *why)
{
    fprintf(stderr, "emulated card: %s\n", why);
    abort();
}

/* A random number below `below`. */
unsigned emulate_random(unsigned below);

/* Runs a kernel to its end. */
void emulate_run(dim3 grid, dim3 block, size_t shared_bytes,
                 const std::function<void()> &thread);

/* An allocation, or what was opened of another process (fd -1). */
struct emulate_piece {
    size_t bytes; /* 0: none */
    int fd;
};

/* The piece that begins at p. */
emulate_piece emulate_piece_of(const void *p);
void emulate_add_piece(const void *p, emulate_piece piece);
void emulate_remove_piece(const void *p);

/* One API call: cudaSuccess, or what a card says that has disappeared. */
cudaError_t emulate_call();

/* Puts work into a stream. */
cudaError_t emulate_enqueue(cudaStream_t s, std::function<void()> work);

#endif
