// Z is a program: nobody imports it.
package main

func Exported() {}

func main() {}
