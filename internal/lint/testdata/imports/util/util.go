package util // want "package util is not in the table"
