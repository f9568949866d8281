// Package overload keeps a server useful under more load than it can serve: a Controller refuses requests by class
// while a risk is above its bound, and a Queue holds those that are admitted until there is a place for them, as long
// as it makes sense. Both are for who has a request in hand, behind the decoder; a flow.Limiter tells how many may be
// under way. See docs/overload.md for how they work together and what that is worth.
package overload
