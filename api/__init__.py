"""What people and machines ask: the command line, later the status API and its live page.

Laws of the room: ``main`` wires everything and nothing else does; a command is loaded when it is called.
Nothing imports this room.
"""
