#include "front_client.h"

#include <CUnit/Basic.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/loop/loop.h"

struct front_fixture f;

void front_open(const struct front_options *options)
{
    f.loop = loop_new();
    f.service = (struct service){.model = {.name = "tiny",
                                           .vocab = 512,
                                           .window_tokens = 1000,
                                           .created_s = 1750000000},
                                 .ready = true};
    f.models.service = &f.service;
    CU_ASSERT_EQUAL_FATAL(front_new(f.loop, &f.models, options, &f.front), 0);
}

void front_close(void)
{
    front_free(f.front);
    fake_service_reset(&f.service);
    loop_free(f.loop);
}

struct front_options front_usual(void)
{
    struct front_options options;

    front_options_default(&options);
    options.http.port = 0;
    return options;
}

struct client *client_new(void)
{
    struct client *c = calloc(1, sizeof(*c));
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(front_port(f.front)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    CU_ASSERT_EQUAL_FATAL(connect(c->fd, (struct sockaddr *)&to, sizeof(to)),
                          0);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    return c;
}

void client_free(struct client *c)
{
    if (c->fd >= 0)
        close(c->fd);
    free(c);
}

void client_read(struct client *c)
{
    ssize_t n;

    while (c->fd >= 0 && !c->closed && c->n < sizeof(c->text) - 1) {
        n = recv(c->fd, c->text + c->n, sizeof(c->text) - 1 - c->n, 0);
        if (n > 0)
            c->n += (size_t)n;
        else if (n == 0 || errno != EAGAIN)
            c->closed = true;
        else
            break;
    }
    c->text[c->n] = '\0';
}

void front_turn(void)
{
    loop_turn(f.loop, 0);
}

bool client_send(struct client *c, const char *bytes, size_t n)
{
    time_t until = time(NULL) + GIVE_UP_S;

    while (n && time(NULL) < until) {
        ssize_t sent = send(c->fd, bytes, n, MSG_NOSIGNAL);

        if (sent < 0 && errno != EAGAIN)
            return false;
        if (sent > 0) {
            bytes += sent;
            n -= (size_t)sent;
        }
        front_turn();
    }
    return n == 0;
}

void client_puts(struct client *c, const char *text)
{
    client_send(c, text, strlen(text));
}

void client_post(struct client *c, const char *path, const char *headers,
                 const char *body)
{
    char head[512];

    snprintf(head, sizeof(head),
             "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
             "Content-Length: %zu\r\n%s\r\n",
             path, strlen(body), headers);
    client_puts(c, head);
    client_puts(c, body);
}

bool client_whole(const struct client *c)
{
    const char *body = strstr(c->text, "\r\n\r\n");
    const char *length = strcasestr(c->text, "Content-Length: ");

    if (body && strcasestr(c->text, "Transfer-Encoding: chunked\r\n"))
        return c->closed || strstr(body, "\r\n0\r\n\r\n");
    return c->closed || (body && length &&
                         c->n >= (size_t)(body + 4 - c->text) +
                                     strtoul(length + 16, NULL, 10));
}

int client_status(const struct client *c)
{
    return strncmp(c->text, "HTTP/1.1 ", 9) == 0 ? atoi(c->text + 9) : 0;
}

json_t *client_json(const struct client *c)
{
    const char *body = strstr(c->text, "\r\n\r\n");

    return body ? json_loads(body + 4, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
}

const char *error_field(json_t *body, const char *key)
{
    const char *text =
        json_string_value(json_object_get(json_object_get(body, "error"), key));

    return text ? text : "";
}

void expect_raw(const char *request, int want, const char *part)
{
    struct client *c = client_new();

    client_puts(c, request);
    WAIT(c, client_whole(c));
    if (client_status(c) != want || !strstr(c->text, part)) {
        printf("\n  %s\n  -> %s", request, c->text);
        CU_FAIL("another answer");
    }
    client_free(c);
}
