/*
 * The front over the tests' fake service, as a program, for clients in
 * other languages: every call is answered with the letters of the alphabet.
 * Prints its port, and ends when its standard input does.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/loop/loop.h"
#include "conductor/front/front.h"
#include "tests/unit/fake_service.h"

struct program {
    struct loop *loop;
    struct service service;
};

/* Answer what came in since the last tick. */
static void on_tick(void *arg)
{
    struct program *program = arg;
    struct service *service = &program->service;

    for (size_t i = 0; i < service->n_requests; i++)
        fake_run(service->requests[i]);
    fake_service_reset(service);
}

static void on_input(void *arg, unsigned)
{
    struct program *program = arg;
    char bytes[64];

    if (read(STDIN_FILENO, bytes, sizeof(bytes)) <= 0)
        loop_stop(program->loop);
}

int main(void)
{
    struct program program = {.service = {.model = {.name = "tiny",
                                                    .vocab = 512,
                                                    .window_tokens = 32768,
                                                    .block_tokens = 256,
                                                    .policy = "plan",
                                                    .created_s = 1750000000},
                                          .ready = true}};
    struct models models = {.service = &program.service};
    struct front_options options;
    struct loop_timer tick;
    struct loop_watch input;
    struct front *front;

    program.loop = loop_new();
    front_options_default(&options);
    options.http.port = 0;
    if (front_new(program.loop, &models, &options, &front))
        return 1;
    loop_timer_init(program.loop, &tick, on_tick, &program);
    loop_watch_init(program.loop, &input, STDIN_FILENO, LOOP_READ, on_input,
                    &program);
    loop_timer_repeat(&tick, 2000);
    loop_watch_start(&input, 0);
    printf("%u\n", front_port(front));
    fflush(stdout);
    loop_run(program.loop);
    loop_timer_stop(&tick);
    loop_watch_stop(&input);
    front_free(front);
    fake_service_reset(&program.service);
    loop_free(program.loop);
    return 0;
}
