// Package codec cuts byte streams into frames and messages: framers for the common formats, a base for others, and what
// all decoders and encoders share.
//
// A Splitter or Decoder is the format alone, on plain bytes; NewFramer and Handle make handlers of them. A handler
// keeps what is not decoded yet and has these rules:
//
//   - A frame within one received Buf is a view of it. Only a frame that came in pieces is copied, and no more than it
//     takes to find its end. No frame costs an allocation.
//   - Memory grows with what was received, never with what was announced, up to the largest frame (and what was
//     received at once when reading is paused); a handler between frames holds none.
//   - Reading is asked about before each frame: behind one during which it was paused nothing comes until it resumes.
//   - What is wrong with a frame is reported once to the error handlers, in its place among the frames. Where none
//     swallows it the channel closes. Swallowed, decoding goes on at the next frame where that can be found (a frame
//     that is too long is skipped); else the channel closes all the same.
//   - At the end of the stream an incomplete frame is reported as ErrTruncated, before ChannelReadClosed goes on.
//   - A handler that is removed passes what it holds to its successor, in one piece and behind the frame that is being
//     handled, also while reading is paused: then it is the successor that holds it back, where it is a decoder.
//
// Everything here belongs to its channel's loop.
package codec
