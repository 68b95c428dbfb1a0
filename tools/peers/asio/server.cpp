// An echo server on asio, one thread: a session per connection, each with its own buffer, as in
// asio's examples. Its reactor, epoll or io_uring, is chosen at compile time.
#include <array>
#include <asio.hpp>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <system_error>

using asio::ip::tcp;

namespace {

enum { EXIT_FAILED = 1, EXIT_USAGE = 2 };

// Enough for the largest message of the usual comparisons.
constexpr std::size_t BUFFER = 16 * 1024;
constexpr int BACKLOG = 65535;
// How long a server that is out of descriptors waits before it accepts again.
constexpr std::chrono::milliseconds SHORTAGE{10};

class session : public std::enable_shared_from_this<session> {
public:
    explicit session(tcp::socket socket) : socket_{std::move(socket)} {}

    void receive()
    {
        auto finish = [self = shared_from_this()](std::error_code error, std::size_t length) {
            if (!error)
                self->send(length);
        };
        socket_.async_read_some(asio::buffer(buffer_), std::move(finish));
    }

private:
    void send(std::size_t length)
    {
        auto finish = [self = shared_from_this()](std::error_code error, std::size_t) {
            if (!error)
                self->receive();
        };
        asio::async_write(socket_, asio::buffer(buffer_, length), std::move(finish));
    }

    tcp::socket socket_;
    std::array<char, BUFFER> buffer_;
};

class server {
public:
    server(asio::io_context &context, tcp::endpoint endpoint) : acceptor_{context}, pause_{context}
    {
        acceptor_.open(endpoint.protocol());
        acceptor_.set_option(tcp::acceptor::reuse_address(true));
        acceptor_.bind(endpoint);
        acceptor_.listen(BACKLOG);
    }

    unsigned short port() const { return acceptor_.local_endpoint().port(); }

    void accept()
    {
        acceptor_.async_accept([this](std::error_code error, tcp::socket socket) {
            if (error)
                return accept_later();
            start(std::move(socket));
            accept();
        });
    }

private:
    static void start(tcp::socket socket)
    {
        std::error_code gone;
        socket.set_option(tcp::no_delay(true), gone);
        if (!gone)
            std::make_shared<session>(std::move(socket))->receive();
    }

    void accept_later()
    {
        pause_.expires_after(SHORTAGE);
        pause_.async_wait([this](std::error_code) { accept(); });
    }

    tcp::acceptor acceptor_;
    asio::steady_timer pause_;
};

[[noreturn]] void end(int code, const char *before, const char *what, const char *after)
{
    std::fprintf(stderr, "%s%s%s\n", before, what, after);
    std::exit(code);
}

unsigned short parse_port(int argc, char **argv)
{
    if (argc != 2)
        end(EXIT_USAGE, "usage: ", argv[0], " PORT (0 picks a free one)");
    unsigned short port;
    const char *text = argv[1], *last = text + std::strlen(text);
    auto [stop, error] = std::from_chars(text, last, port);
    if (error != std::errc{} || stop != last)
        end(EXIT_USAGE, "port '", text, "' is not a number from 0 to 65535; 0 picks a free one");
    return port;
}

} // namespace

int main(int argc, char **argv)
{
    unsigned short port = parse_port(argc, argv);
    try {
        asio::io_context context{1}; // one thread: asio then omits what only several threads need
        server echo{context, tcp::endpoint{asio::ip::address_v4::loopback(), port}};
        echo.accept();
        std::fprintf(stderr, "listening on 127.0.0.1:%u\n", echo.port());
        context.run();
    } catch (const std::exception &error) {
        end(EXIT_FAILED, "cannot serve: ", error.what(), "");
    }
}
