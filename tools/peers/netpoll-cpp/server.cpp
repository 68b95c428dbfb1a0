// An echo server on netpoll-cpp, as in its documentation, with one event loop that serves and one
// that accepts: the library allows no fewer.
#include <cstdlib>

#include <elog/logger.h>
#include <netpoll/core.h>

#include "../contract.h"

namespace {

struct echo {
    NETPOLL_TCP_MESSAGE(connection, buffer) { connection->send(buffer->readAll()); }
};

} // namespace

extern "C" {

const char *const modes[] = {nullptr};

int serve(const char *)
{
    elog::GlobalConfig::Get().setLevel(elog::kFatal);
    auto loop = netpoll::NewEventLoop(1);
    auto listener = netpoll::tcp::Listener::New({0, true});
    listener.bind<echo>();
    loop.serve(listener);
    return EXIT_FAILURE;
}

}
