/* See where.h. */
#include "tools/ctl/where.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/address.h"
#include "base/error.h"
#include "base/json_fields.h"

#define FILE_BYTES_MAX (4u << 20)

/* Parses HOST:PORT or a URL. Returns whether it is valid. */
static bool read_address(const char *text, struct replay_server *server)
{
    struct address address;

    if (strstr(text, "://"))
        return replay_server_parse(text, server) == 0;
    if (address_parse(text, &address) || address.port == 0)
        return false;
    *server = (struct replay_server){.port = address.port};
    snprintf(server->host, sizeof server->host, "%s", address.host);
    return true;
}

static const char *text_of(const struct fields_object *root, const char *key)
{
    const char *text = json_string_value(json_object_get(root->json, key));

    return text ? text : "";
}

static bool is_on(const struct fields_object *root, const char *key)
{
    return json_is_true(json_object_get(root->json, key)) ||
           strcmp(text_of(root, key), "on") == 0;
}

/* Returns the address to ask: loopback for a server that listens on all. */
static const char *reached_at(const char *host)
{
    if (strcmp(host, "*") == 0 || strcmp(host, "0.0.0.0") == 0)
        return "127.0.0.1";
    return strcmp(host, "::") == 0 ? "::1" : host;
}

struct listen {
    struct replay_server *server;
    char *from; /* CTL_FROM_BYTES */
};

/* Reads the listen address; a fields_reader. Other fields are not checked: that
 * is the conductor's job. */
static void read_listen(struct fields *f, const struct fields_object *root,
                        void *into)
{
    const char *key =
        *text_of(root, "admin_listen") ? "admin_listen" : "listen";
    const char *text = text_of(root, key);
    struct replay_server *server = ((struct listen *)into)->server;

    if (*text) {
        snprintf(((struct listen *)into)->from, CTL_FROM_BYTES, "%s in %s", key,
                 f->file);
    } else {
        snprintf(((struct listen *)into)->from, CTL_FROM_BYTES,
                 "the default, as %s has no listen", f->file);
        text = CTL_ADDRESS;
    }
    if (!read_address(text, server)) {
        fields_refuse(f, "", key, "\"%s\": is no address to connect to", text);
        return;
    }
    const char *host = reached_at(server->host);
    if (host != server->host)
        snprintf(server->host, sizeof server->host, "%s", host);
    server->https = *text_of(root, "tls_certificate") &&
                    (*key == 'l' || is_on(root, "admin_tls"));
}

int ctl_where(const char *given, const char *variable, const char *file,
              struct replay_server *server, char from[CTL_FROM_BYTES],
              char *why, size_t size)
{
    struct fields f = {"", file, why, size, 0};
    struct listen listen = {server, from};
    const char *address = given;

    if (!given && variable && *variable)
        address = variable;
    *why = '\0';
    snprintf(from, CTL_FROM_BYTES, "%s",
             given ? "--address" : "CONDUCTOR_ADDRESS");
    if (address)
        return read_address(address, server)
                   ? 0
                   : error_say(why, size, -EINVAL,
                               "%s: \"%s\": must be HOST:PORT, or "
                               "https://HOST:PORT",
                               from, address);
    int rc = fields_read(&f, NULL, FILE_BYTES_MAX, read_listen, &listen);
    if (rc == 0)
        return 0;
    snprintf(from, CTL_FROM_BYTES, "the default, as %s %s", file,
             rc == -ENOENT ? "is not there" : "cannot be used");
    if (rc == -ENOENT)
        *why = '\0';
    else
        snprintf(why + strlen(why), size - strlen(why),
                 ": asking %s; --address or CONDUCTOR_ADDRESS names another "
                 "conductor",
                 CTL_ADDRESS);
    return read_address(CTL_ADDRESS, server) ? 0 : -EINVAL;
}
