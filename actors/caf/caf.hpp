// The part of CAF that penstock uses, for CAF 0.17 and CAF 1: typed handles, actors with a state, messages that stay
// in the process, and the system whose threads run the actors. Nothing else includes CAF's headers, except the
// tests' own scheduler (tests/actors/support). Only CAF's public interface is used.
#pragma once

#include <caf/actor_cast.hpp>
#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/config.hpp>
#include <caf/send.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include <cstddef>
#include <memory>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#ifdef CAF_VERSION_MAJOR  // since CAF 0.18
#define PENSTOCK_CAF_1 1
#include <caf/anon_mail.hpp>
#include <caf/init_global_meta_objects.hpp>
#include <caf/type_id.hpp>
#else
#define PENSTOCK_CAF_1 0
#endif

namespace penstock::actors {

// ---- messages ---------------------------------------------------------------------------------------------

/// The messages that an actor receives; none has a reply.
template <class... Messages>
struct hears {
#if PENSTOCK_CAF_1
  using actor = caf::typed_actor<caf::result<void>(Messages)...>;
#else
  using actor = caf::typed_actor<caf::reacts_to<Messages>...>;
#endif
  template <class... More>
  using and_also = hears<Messages..., More...>;
  template <class Message>
  static constexpr bool includes = (std::is_same_v<Message, Messages> || ...);
};

template <class... Lists>
struct join_lists;
template <class... Messages>
struct join_lists<hears<Messages...>> {
  using type = hears<Messages...>;
};
template <class... First, class... Second, class... More>
struct join_lists<hears<First...>, hears<Second...>, More...>
    : join_lists<hears<First..., Second...>, More...> {};
template <class... Lists>
using joined = typename join_lists<Lists...>::type;

/// The number of the PENSTOCK_ACTOR_MESSAGES list that contains the message; -1 if none does.
template <class Message>
inline constexpr int block_of = -1;
/// The list with this number.
template <int Block>
struct messages_in;

/// Declares a list's messages to CAF. Must come before the first use of a handle to an actor that receives
/// them. The messages are never serialised. Each list has its own number, and no message is in two lists.
#define PENSTOCK_ACTOR_MESSAGES(number, list)                                                           \
  template <>                                                                                           \
  struct penstock::actors::messages_in<number> {                                                        \
    using type = list;                                                                                  \
  };                                                                                                    \
  template <class Message>                                                                              \
  requires(list::template includes<Message>) inline constexpr int penstock::actors::block_of<Message> = \
      number;

#if PENSTOCK_CAF_1
namespace detail {

// CAF 1 needs a number and a name for each message, and a table of both before the first system starts. Its macros would
// need a second list of all messages; these templates derive both from the lists in the actors' interfaces.
inline constexpr int messages_max = 400;

template <class List>
struct numbered;
template <class... Messages>
struct numbered<hears<Messages...>> {
  static constexpr int count = sizeof...(Messages);
  static_assert(count <= messages_max);
  template <class Message>
  static constexpr int place() {
    int before = 0;
    static_cast<void>(((std::is_same_v<Message, Messages> ? false : (++before, true)) && ...));
    return before;
  }
  template <int Place>
  using at = std::tuple_element_t<Place, std::tuple<Messages...>>;
};
template <int Block>
using numbered_block = numbered<typename messages_in<Block>::type>;

inline constexpr int first_id = static_cast<int>(caf::first_custom_type_id);
template <class Message>
inline constexpr int id_of = first_id + block_of<Message>* messages_max +
                             numbered_block<block_of<Message>>::template place<Message>();
template <int Id>
using with_id =
    typename numbered_block<(Id - first_id) / messages_max>::template at<(Id - first_id) % messages_max>;

template <class Message>
constexpr std::string_view name_of() {
  return __PRETTY_FUNCTION__;  // contains the type's name
}

template <int Block>
struct ids {
  static constexpr auto begin = static_cast<caf::type_id_t>(first_id + Block * messages_max);
  static constexpr auto end =
      static_cast<caf::type_id_t>(first_id + Block * messages_max + numbered_block<Block>::count);
};

template <int Block>
void register_messages() {
  static const bool once = [] {
    caf::core::init_global_meta_objects();
    caf::init_global_meta_objects<ids<Block>>();
    return true;
  }();
  static_cast<void>(once);
}

}  // namespace detail
#endif

// ---- the system -------------------------------------------------------------------------------------------

/// The threads that run actors, with the settings of docs/decisions/0002-caf-settings.md.
class actor_system {
 public:
  /// `threads`: 2 in a session, 1 in a child. `Block`: which list holds the messages that its actors receive.
  template <int Block>
  actor_system(std::size_t threads, std::integral_constant<int, Block> messages)
      : actor_system(made(threads, registered(messages))) {}
  /// For tests, which have their own scheduler.
  explicit actor_system(std::shared_ptr<caf::actor_system> made) : system_(std::move(made)) {}

  void await_all_actors_done() { system_->await_all_actors_done(); }
  [[nodiscard]] caf::actor_system& of_caf() noexcept { return *system_; }

 private:
  struct messages_registered {};
  template <int Block>
  static messages_registered registered(std::integral_constant<int, Block>) {
#if PENSTOCK_CAF_1
    detail::register_messages<Block>();
#endif
    return {};
  }
  static std::shared_ptr<caf::actor_system> made(std::size_t threads, messages_registered);

  std::shared_ptr<caf::actor_system> system_;
};

// ---- sending ----------------------------------------------------------------------------------------------

/// Sends from any thread. A message to a null handle is dropped.
template <class Handle, class Message>
void tell(const Handle& to, Message&& message) {
#if PENSTOCK_CAF_1
  caf::anon_mail(std::forward<Message>(message)).send(to);
#else
  caf::anon_send(to, std::forward<Message>(message));
#endif
}

/// Ends an actor that does not end by itself.
template <class Handle>
void stop(const Handle& to) {
  caf::anon_send_exit(to, caf::exit_reason::user_shutdown);
}

/// A handle that does not keep the actor alive.
template <class Handle>
class weak_handle {
 public:
  explicit weak_handle(const Handle& to) : to_(caf::actor_cast<caf::weak_actor_ptr>(to)) {}
  /// Null if the actor is gone.
  [[nodiscard]] Handle lock() const { return caf::actor_cast<Handle>(to_); }

 private:
  caf::weak_actor_ptr to_;
};

// ---- actors with a state ----------------------------------------------------------------------------------

namespace detail {

#if PENSTOCK_CAF_1
template <class Handle, class State>
using implementation = typename Handle::template stateful_impl<State>;
#else
template <class Handle, class State>
using implementation = typename Handle::template stateful_base<State>;
#endif

}  // namespace detail

/// What an actor's handlers get as `self`: used like a pointer to the actor.
template <class Handle, class State>
class self {
 public:
  using implementation = detail::implementation<Handle, State>;

#if PENSTOCK_CAF_1
  explicit self(implementation* actor) : state(actor->state()), actor_(actor) {}
#else
  explicit self(implementation* actor) : state(actor->state), actor_(actor) {}
#endif
  const self* operator->() const noexcept {
    return this;
  }
  explicit operator Handle() const {
    return Handle(actor_);
  }

  template <class To, class Message>
  void send(const To& to, Message&& message) const {
#if PENSTOCK_CAF_1
    actor_->mail(std::forward<Message>(message)).send(to);
#else
    actor_->send(to, std::forward<Message>(message));
#endif
  }
  template <class To, class Delay, class Message>
  void delayed_send(const To& to, Delay delay, Message&& message) const {
#if PENSTOCK_CAF_1
    actor_->mail(std::forward<Message>(message)).delay(delay).send(to);
#else
    actor_->delayed_send(to, delay, std::forward<Message>(message));
#endif
  }
  [[nodiscard]] auto& clock() const noexcept {
    return actor_->clock();
  }
  /// The actor handles no further messages. Its state is destroyed after the current handler.
  void quit() const {
    actor_->quit();
  }

  [[nodiscard]] implementation* of_caf() const noexcept {
    return actor_;
  }

  State& state;

 private:
  implementation* actor_;
};

/// Starts an actor. `behave` creates its handlers, on the thread that runs it.
template <class Handle, class State, class Deps>
Handle spawn(actor_system& system, typename Handle::behavior_type (*behave)(self<Handle, State>, Deps),
             Deps deps) {
  return system.of_caf().spawn(
      [behave](typename self<Handle, State>::implementation* actor, Deps given) {
        return behave(self<Handle, State>(actor), std::move(given));
      },
      std::move(deps));
}

/// Like spawn(), but the actor gets its own thread, which it may block.
template <class Handle, class State, class Deps>
Handle spawn_on_its_own_thread(actor_system& system,
                               typename Handle::behavior_type (*behave)(self<Handle, State>, Deps),
                               Deps deps) {
  return system.of_caf().template spawn<caf::detached>(
      [behave](typename self<Handle, State>::implementation* actor, Deps given) {
        return behave(self<Handle, State>(actor), std::move(given));
      },
      std::move(deps));
}

}  // namespace penstock::actors

/// CAF requires this for every message that cannot be serialised.
template <class Message>
requires(penstock::actors::block_of<Message> >= 0) struct caf::allowed_unsafe_message_type<Message>
    : std::true_type {
};

#if PENSTOCK_CAF_1
template <class Message>
requires(penstock::actors::block_of<Message> >= 0) struct caf::type_id<Message> {
  static constexpr auto value = static_cast<type_id_t>(penstock::actors::detail::id_of<Message>);
};
template <class Message>
requires(penstock::actors::block_of<Message> >= 0) struct caf::type_name<Message> {
  static constexpr std::string_view value = penstock::actors::detail::name_of<Message>();
};
template <caf::type_id_t Id>
requires(static_cast<int>(Id) >= penstock::actors::detail::first_id) struct caf::type_by_id<Id> {
  using type = penstock::actors::detail::with_id<static_cast<int>(Id)>;
};
template <caf::type_id_t Id>
requires(static_cast<int>(Id) >= penstock::actors::detail::first_id) struct caf::type_name_by_id<Id>
    : caf::type_name<typename caf::type_by_id<Id>::type> {
};
#endif
